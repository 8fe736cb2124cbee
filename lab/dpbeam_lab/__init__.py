"""What looks at private data without protection, invents data, or attacks. No release passes through here."""
