"""For who answers for a release: what its ledger proves, and a page to sign."""
