(* What gsu, its floor and series have in common: two worlds that release the same until a rare bad event.
   docs/explanation/gsu.md, steps 1 and 3; privacy.md, "A floor on users"; series.md, steps 0, 1, 2 and 4. *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Probability Gaussian.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Identical.
Variables (R : realFieldType) (I V : finType) (rounds : nat).
Variables (nu : V -> R) (noise : nat -> V -> R).
Hypothesis nu_ge0 : forall v, 0 <= nu v.
Hypothesis nu_1 : \sum_v nu v = 1.
Local Notation W := {ffun I -> V}.
Local Notation PrW := (Pr (prod_mu nu : W -> R)).
Local Notation hist := (hist R I).

(* Of every round so far the items that it released. *)
Definition releases := seq {set I}.
Definition out (rel : releases) : {set I} := \bigcup_(A <- rel) A.
Definition own (h : hist) (i : I) : seq R := [seq (g : {ffun I -> R}) i | g <- h].

(* cross k g: the test of round k, on the item's own noisy sums g of the rounds up to k. *)
Variable cross : nat -> seq R -> bool.
Definition passed (cand : {set I}) (h : hist) (rel : releases) : {set I} :=
  [set i in cand | (i \notin out rel) && cross (size rel) (own h i)].

(* A world: the exact sums and the candidates of a round, which noisy sums and releases so far determine. *)
Fixpoint world (sums : hist -> releases -> I -> R) (cand : hist -> releases -> {set I}) (w : W) r : hist * releases :=
  if r is r'.+1 then
    let: (h, rel) := world sums cand w r' in
    let h' := rcons h [ffun i => sums h rel i + noise r' (w i)] in
    (h', rcons rel (passed (cand h rel) h' rel))
  else ([::], [::]).

(* What the others send, what v adds to it; who may be released without v, and who because of v. *)
Variables (s x : hist -> releases -> I -> R) (c cv : hist -> releases -> {set I}).

(* The releases as a function of the history, by the candidates without v. *)
Fixpoint read n (h : hist) : releases :=
  if n is m.+1 then let rel := read m h in
    rcons rel (passed (c (take m h) rel) (take m.+1 h) rel)
  else [::].
Definition reading h := read (size h) h.

Lemma size_read n h : size (read n h) = n.
Proof. by elim: n => //= n IH; rewrite size_rcons IH. Qed.

Lemma read_take n q h : (q <= n)%N -> read q (take n h) = read q h.
Proof.
by elim: q => //= q IH qn; rewrite IH ?(ltnW qn) // !take_take // ltnW.
Qed.

Lemma take_read n q h : (q <= n)%N -> take q (read n h) = read q h.
Proof.
elim: n => [|n IH]; first by rewrite leqn0 => /eqP ->.
rewrite leq_eqVlt => /orP[/eqP ->|]; first by rewrite take_oversize // size_read.
by rewrite ltnS => qn; rewrite -IH //= -cats1 takel_cat // size_read.
Qed.

Lemma reading_take q h : (q <= size h)%N -> reading (take q h) = read q h.
Proof. by move=> qh; rewrite /reading size_takel // read_take. Qed.

(* Both sums, of one history alone. *)
Definition s1 h := s h (reading h).
Definition x1 h := x h (reading h).

(* Bad: an item that only v made a candidate passes the test of a round. *)
Definition bad_at (h : hist) (q : nat) (i : I) : bool :=
  [&& i \in cv (take q h) (read q h), i \notin c (take q h) (read q h) & cross q (own (take q.+1 h) i)].
Definition bad (h : hist) : bool := [exists q : 'I_rounds, exists i, bad_at h q i].

(* S is the world without v; S* has the weights of v, and the candidates without v. *)
Definition runS (w : W) := run noise s1 w rounds.
Definition runS' (w : W) := run noise (fun h i => s1 h i + x1 h i) w rounds.

(* A world whose candidates are those without v is a reading of its history. *)
Lemma worldE sums w r :
  world sums c w r = let h := run noise (fun h => sums h (reading h)) w r in (h, read r h).
Proof.
elim: r => //= r ->; set h := run _ _ w r; have hr : size h = r by apply: size_run.
have -> : reading h = read r h by rewrite /reading hr.
set y := [ffun i => _].
have ty : take r (rcons h y) = h by rewrite -cats1 take_size_cat.
have ty' : take r.+1 (rcons h y) = rcons h y by rewrite take_oversize // size_rcons hr.
by rewrite /= -/y ty ty' -(read_take (rcons h y) (leqnn r)) ty.
Qed.

(* Lemma 2 of series.md: S' is S* until the bad event. *)
Lemma until_bad w : ~~ bad (runS' w) ->
  world (fun h rel i => s h rel i + x h rel i) (fun h rel => c h rel :|: cv h rel) w rounds =
  (runS' w, reading (runS' w)).
Proof.
move=> nb; rewrite /reading size_run.
suff st r : (r <= rounds)%N ->
    world (fun h rel i => s h rel i + x h rel i) (fun h rel => c h rel :|: cv h rel) w r =
    (take r (runS' w), read r (runS' w)) by rewrite st // take_oversize // size_run.
elim: r => [|r IH] rr; first by rewrite take0.
set h := run noise (fun h i => s1 h i + x1 h i) w r.
have hr : take r (runS' w) = h by apply: take_run; apply: ltnW.
have rd : read r (runS' w) = reading h by rewrite -hr reading_take // size_run ltnW.
have next : take r.+1 (runS' w) = rcons h [ffun i => s h (reading h) i + x h (reading h) i + noise r (w i)].
  by rewrite take_run //.
rewrite [LHS]/= (IH (ltnW rr)) hr rd -next; congr (_, _); rewrite [RHS]/= hr rd; congr rcons.
apply/setP => i; rewrite !inE -rd size_read rd; case ic: (i \in c _ _) => //=.
case iv: (i \in cv _ _) => //=; apply/negbTE/negP => /andP[_ cr].
case/negP: nb; apply/existsP; exists (Ordinal rr); apply/existsP; exists i.
by rewrite /bad_at /= hr rd iv ic -(size_read r (runS' w)) rd in cr *.
Qed.

Variables (e dG dT : R).
Hypothesis e_ge0 : 0 <= e.
(* A1, from Gaussian.v: rounds that keep to their cost. *)
Variable prec : nat -> R.
Variable total : R.
Hypothesis A1 : forall s x : hist -> I -> R, (forall h, size h = rounds -> spent prec x h <= total) ->
  let h w := run noise s w rounds in let h' w := run noise (fun h i => s h i + x h i) w rounds in
  forall E : pred hist, PrW (fun w => E (h' w)) <= e * PrW (fun w => E (h w)) + dG /\
    PrW (fun w => E (h w)) <= e * PrW (fun w => E (h' w)) + dG.
Hypothesis cost : forall h, size h = rounds -> spent prec x1 h <= total.
(* Novel items rarely cross, in S* and in S. *)
Hypothesis rare : PrW (fun w => bad (runS w)) <= dT.
Hypothesis rare' : PrW (fun w => bad (runS' w)) <= dT.

(* Whatever is computed from noisy sums and releases, in the world without v and in the world with v. *)
Theorem identical (O : Type) (show : hist * releases -> O) :
  let without w := show (world s c w rounds) in
  let with_v w := show (world (fun h rel i => s h rel i + x h rel i) (fun h rel => c h rel :|: cv h rel) w rounds) in
  forall o : pred O, PrW (fun w => o (with_v w)) <= e * PrW (fun w => o (without w)) + (dG + dT) /\
    PrW (fun w => o (without w)) <= e * PrW (fun w => o (with_v w)) + (dG + dT).
Proof.
move=> without with_v o.
have outS w : ~~ bad (runS w) -> without w = show (runS w, reading (runS w)).
  by move=> _; rewrite /without worldE /reading size_run.
have outS' w : ~~ bad (runS' w) -> with_v w = show (runS' w, reading (runS' w)).
  by move=> nb; rewrite /with_v until_bad.
pose f h := show (h, reading h).
have dp := @A1 s1 x1 cost.
split.
  exact: (@combine _ _ _ (prod_mu_ge0 nu_ge0) _ _ runS runS' bad f without with_v _ _ _ e_ge0 outS outS'
    (fun E => (dp E).1) rare').
exact: (@combine _ _ _ (prod_mu_ge0 nu_ge0) _ _ runS' runS bad f with_v without _ _ _ e_ge0 outS' outS
  (fun E => (dp E).2) rare).
Qed.
End Identical.

(* Worlds of equal sums and candidates are equal. *)
Lemma world_ext (R : realFieldType) (I V : finType) noise cross sums sums' cand cand' (w : {ffun I -> V}) r :
  (forall h rel i, sums h rel i = sums' h rel i) -> (forall h rel, cand h rel = cand' h rel) ->
  @world R I V noise cross sums cand w r = world noise cross sums' cand' w r.
Proof.
move=> ss cc; elim: r => //= r ->; case: (world _ _ _ _ _ _) => h rel; rewrite cc.
suff -> : [ffun i => sums h rel i + noise r (w i)] = [ffun i => sums' h rel i + noise r (w i)] by [].
by apply/ffunP => i; rewrite !ffunE ss.
Qed.

Section Crossing.
Variables (R : realFieldType) (I V : finType) (rounds : nat) (noise : nat -> V -> R) (cross : nat -> seq R -> bool).
Variables (a rho slack : nat -> R).
Hypothesis a_ge0 : forall q, 0 <= a q.
(* The test of the program: of a float state, with integer draws, at most slack below the exact one. *)
Hypothesis cross_slack : forall k g, size g = k.+1 -> cross k g -> rho k <= \sum_(q < k.+1) a q * nth 0 g q + slack k.

(* An item that gets c in every tested round crosses by this noise alone. *)
Definition crosses_alone (c : R) (v : V) : bool :=
  [exists k : 'I_rounds, rho k <= c * (\sum_(q < k.+1) a q) + \sum_(q < k.+1) a q * noise q v + slack k].

Lemma nth_own s (w : {ffun I -> V}) r q i : (q < r)%N ->
  nth 0 (own (run noise s w r) i) q = s (run noise s w q) i + noise q (w i).
Proof.
elim: r => //= r IH; rewrite ltnS leq_eqVlt /own map_rcons nth_rcons size_map size_run.
by case/orP => [/eqP ->|qr]; [rewrite ltnn eqxx ffunE | rewrite qr -/(own _ _) IH].
Qed.

(* Step 2 of gsu.md, step 3 of series.md: what arrives is at most c, so the noise must do the rest. *)
Lemma crossed_alone s (w : {ffun I -> V}) i c k : (k < rounds)%N ->
  (forall q, (q <= k)%N -> 0 < a q -> s (run noise s w q) i <= c) ->
  cross k (own (take k.+1 (run noise s w rounds)) i) -> crosses_alone c (w i).
Proof.
move=> kr sc; rewrite take_run // => /cross_slack; rewrite size_map size_run => /(_ erefl) ck.
have {ck}ck : rho k <= \sum_(q < k.+1) a q * (s (run noise s w q) i + noise q (w i)) + slack k.
  by apply: le_trans ck _; rewrite ler_add2r; apply: ler_sum => q _; rewrite nth_own.
apply/existsP; exists (Ordinal kr); apply: le_trans ck _; rewrite ler_add2r mulr_sumr -big_split /=.
apply: ler_sum => q _; rewrite mulrDr ler_add2r mulrC.
have [aq|] := ltP 0 (a q); first by rewrite ler_pmul2r // sc // -ltnS.
move=> aq; suff -> : a q = 0 by rewrite !mulr0.
by apply/eqP; rewrite eq_le aq a_ge0.
Qed.
End Crossing.
