(* bits: docs/explanation/bits.md. Of every item and round nothing but a coin is seen. *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Probability.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Rounds.
Variables (R : realFieldType).
(* F p q is p^a q^(1-a), 0 where q is 0. Assumed of it: it is a product of powers, and the inequality of Canonne, Kamath
   and Steinke (2020) that turns a Renyi divergence into delta: K is (1 - 1/a)^(a-1) exp((1-a) epsilon) / a. *)
Variables (F : R -> R -> R) (K e : R).
Hypothesis F_ge0 : forall p q, 0 <= p -> 0 <= q -> 0 <= F p q.
Hypothesis F_mul : forall p q p' q', 0 <= p -> 0 <= q -> 0 <= p' -> 0 <= q' -> F (p * p') (q * q') = F p q * F p' q'.
Hypothesis F_same : forall p, 0 <= p -> F p p = p.
Hypothesis K_ge0 : 0 <= K.
Hypothesis to_delta : forall p q, 0 <= p -> 0 <= q -> (q = 0 -> p = 0) -> p - e * q <= K * F p q.
Hypothesis e_ge0 : 0 <= e.

(* Rounds of which each has a law, or a measure below one, given what all rounds before have shown. *)
Section Adaptive.
Variable X : finType.
Fixpoint mean (l : seq X -> X -> R) n (f : seq X -> R) (h : seq X) : R :=
  if n is m.+1 then \sum_x l h x * mean l m f (rcons h x) else f h.

Variables (l l' lo lo' : seq X -> X -> R) (M C : nat -> R).
Hypothesis lo_ge0 : forall h x, 0 <= lo h x.
Hypothesis lo'_ge0 : forall h x, 0 <= lo' h x.
Hypothesis lo_le : forall h x, lo h x <= l h x.
Hypothesis lo'_le : forall h x, lo' h x <= l' h x.
Hypothesis l_1 : forall h, \sum_x l h x = 1.
Hypothesis seen : forall h x, lo' h x = 0 -> lo h x = 0.
(* What is taken off a round, and the power of what is left. *)
Hypothesis off : forall h, \sum_x (l h x - lo h x) <= M (size h).
Hypothesis power : forall h, \sum_x F (lo h x) (lo' h x) <= C (size h).
Variable f : seq X -> R.
Hypothesis f_01 : forall h, 0 <= f h <= 1.

Lemma l_ge0 h x : 0 <= l h x. Proof. exact: le_trans (lo_ge0 h x) (lo_le h x). Qed.
Lemma l'_ge0 h x : 0 <= l' h x. Proof. exact: le_trans (lo'_ge0 h x) (lo'_le h x). Qed.

Lemma mean_01 n h : 0 <= mean l n f h <= 1.
Proof.
elim: n h => [|n IH] h /=; first exact: f_01.
apply/andP; split; first by apply: sumr_ge0 => x _; apply: mulr_ge0; [apply: l_ge0 | case/andP: (IH (rcons h x))].
rewrite -(l_1 h); apply: ler_sum => x _; rewrite -[X in _ <= X]mulr1; apply: ler_wpmul2l; first exact: l_ge0.
by case/andP: (IH (rcons h x)).
Qed.

Lemma M_ge0 (h : seq X) : 0 <= M (size h).
Proof. by apply: le_trans (off h); apply: sumr_ge0 => x _; rewrite subr_ge0. Qed.

(* Step 2 of bits.md: one round after the other. *)
Lemma taken_off n h : mean l n f h <= mean lo n f h + \sum_(size h <= r < size h + n) M r.
Proof.
elim: n h => [|n IH] h; first by rewrite addn0 big_geq // addr0.
have M0 : 0 <= \sum_((size h).+1 <= r < (size h).+1 + n) M r.
  case: (pickP (fun _ : X => true)) => [x _|none]; last first.
    by have := l_1 h; rewrite big_pred0 // => /eqP; rewrite eq_sym oner_eq0.
  by apply: sumr_ge0 => r _; rewrite -(size_nseq r x) M_ge0.
rewrite addnS -addSn big_ltn ?ltnS ?leq_addr //= addrA.
apply: (@le_trans _ _ (\sum_x lo h x * mean l n f (rcons h x) + M (size h))).
  rewrite -ler_subl_addl -sumrB; apply: le_trans (off h); apply: ler_sum => x _.
  rewrite -mulrBl -[X in _ <= X]mulr1; apply: ler_wpmul2l; first by rewrite subr_ge0.
  by case/andP: (mean_01 n (rcons h x)).
rewrite addrAC ler_add2r.
apply: (@le_trans _ _ (\sum_x lo h x * (mean lo n f (rcons h x) + \sum_((size h).+1 <= r < (size h).+1 + n) M r))).
  by apply: ler_sum => x _; apply: ler_wpmul2l => //; have := IH (rcons h x); rewrite size_rcons.
under eq_bigr => x _ do rewrite mulrDr.
rewrite big_split /= ler_add2l -mulr_suml -[X in _ <= X]mul1r; apply: ler_wpmul2r => //.
by rewrite -(l_1 h); apply: ler_sum.
Qed.

Lemma mean_lo'_le n h : 0 <= mean lo' n f h <= mean l' n f h.
Proof.
elim: n h => [|n IH] h /=; first by case/andP: (f_01 h) => -> _ /=.
apply/andP; split; first by apply: sumr_ge0 => x _; apply: mulr_ge0 => //; case/andP: (IH (rcons h x)).
apply: ler_sum => x _; case/andP: (IH (rcons h x)) => i0 i1; exact: ler_pmul.
Qed.

(* Powers multiply, whatever the rounds before were. *)
Lemma powers n h p q : 0 <= p -> 0 <= q -> (q = 0 -> p = 0) -> (forall r, 0 <= C r) ->
  p * mean lo n f h - e * (q * mean lo' n f h) <= K * F p q * \prod_(size h <= r < size h + n) C r.
Proof.
move=> p0 q0 pq C0; elim: n h p q p0 q0 pq => [|n IH] h p q p0 q0 pq.
  rewrite addn0 big_geq // mulr1 /= mulrA -mulrBl.
  have k0 : 0 <= K * F p q by apply: mulr_ge0 => //; apply: F_ge0.
  have := to_delta p0 q0 pq; case/andP: (f_01 h) => g0 g1 d.
  case: (lerP 0 (p - e * q)) => s; first by apply: le_trans d; rewrite -[X in _ <= X]mulr1 ler_wpmul2l.
  by apply: le_trans k0; rewrite nmulr_rle0.
rewrite addnS -addSn big_ltn ?ltnS ?leq_addr //= !mulr_sumr -sumrB.
set G := \prod_(_ <= r < _) _.
have G0 : 0 <= G by apply: prodr_ge0.
apply: (@le_trans _ _ (\sum_x K * F p q * G * F (lo h x) (lo' h x))).
  apply: ler_sum => x _; have := IH (rcons h x) (p * lo h x) (q * lo' h x).
  rewrite !mulr_ge0 // => /(_ isT isT) step; rewrite !mulrA in step *.
  apply: le_trans (step _) _; last by rewrite size_rcons F_mul // -/G -!mulrA [F (lo h x) _ * G]mulrC.
  move/eqP; rewrite mulf_eq0 => /orP[/eqP/pq ->|/eqP/seen ->]; by rewrite ?mul0r ?mulr0.
rewrite -mulr_sumr -!mulrA; do 2 (apply: ler_wpmul2l; rewrite ?F_ge0 //).
by rewrite mulrC; apply: ler_wpmul2r.
Qed.

Theorem adaptive_powers n : (forall r, 0 <= C r) ->
  mean l n f [::] <= e * mean l' n f [::] + (\sum_(r < n) M r + K * \prod_(r < n) C r).
Proof.
move=> C0; have := taken_off n [::]; rewrite add0n big_mkord => /le_trans; apply.
rewrite [\sum_(r < n) M r + _]addrC addrA ler_add2r.
have := @powers n [::] 1 1 ler01 ler01; rewrite !mul1r add0n big_mkord F_same ?ler01 // mulr1.
move=> /(_ (fun H => H) C0); rewrite ler_subl_addl => /le_trans; apply.
by rewrite ler_add2r; apply: ler_wpmul2l => //; case/andP: (mean_lo'_le n [::]).
Qed.
End Adaptive.

(* Step 1 of bits.md: the coins of one round, of which those of the items of D are others. *)
Section Coins.
Variables (I : finType) (D : {set I}) (B u u' : I -> bool -> R) (m c : R).
Hypothesis u_ge0 : forall i b, 0 <= u i b.
Hypothesis u'_ge0 : forall i b, 0 <= u' i b.
Hypothesis u_le : forall i b, u i b <= B i b.
Hypothesis B_1 : forall i, \sum_b B i b = 1.
Hypothesis same : forall i b, i \notin D -> u i b = B i b /\ u' i b = B i b.
Hypothesis left : forall i, i \in D -> 1 - m <= \sum_b u i b.
Hypothesis near : forall i, i \in D -> \sum_b F (u i b) (u' i b) <= c.
Definition product (w : I -> bool -> R) (x : {ffun I -> bool}) : R := \prod_i w i (x i).

Lemma product_mass w : \sum_x product w x = \prod_i \sum_b w i b.
Proof. by rewrite (bigA_distr_bigA w). Qed.

Lemma product_1 : \sum_x product B x = 1.
Proof. by rewrite product_mass big1. Qed.

Lemma some_left (s : seq I) (y : I -> R) : (forall i, i \in s -> 1 - m <= y i) -> (forall i, 0 <= y i <= 1) -> 0 <= m ->
  1 - m *+ size s <= \prod_(i <- s) y i.
Proof.
move=> ym y01 m0; elim: s ym => [|i s IH] ym; first by rewrite big_nil mulr0n subr0.
have Q0 : 0 <= \prod_(j <- s) y j by apply: prodr_ge0 => j _; case/andP: (y01 j).
have Q1 : \prod_(j <- s) y j <= 1.
  elim: s {IH ym Q0} => [|j s IH]; rewrite ?big_nil // big_cons.
  by case/andP: (y01 j) => j0 j1; apply: mulr_ile1; rewrite // prodr_ge0 // => k _; case/andP: (y01 k).
have Q := IH (fun j js => ym j (mem_behead (s := i :: s) js)).
have yi := ym i (mem_head i s); case/andP: (y01 i) => y0 y1.
rewrite big_cons /= mulrS opprD addrCA -[X in _ <= X]addr0.
set P := \prod_(j <- s) y j in Q0 Q1 Q *.
have step : (1 - y i) * P <= m.
  by apply: (@le_trans _ _ (1 - y i)); [rewrite ler_pimulr ?subr_ge0 | rewrite ler_subl_addr addrC -ler_subl_addr].
rewrite addr0; apply: (@le_trans _ _ (- m + P)); first by rewrite ler_add2l.
by move: step; rewrite mulrBl mul1r ler_subl_addr addrC -ler_subl_addr addrC.
Qed.

Lemma coins_off : 0 <= m -> \sum_x (product B x - product u x) <= m *+ #|D|.
Proof.
move=> m0; rewrite sumrB product_1 product_mass ler_subl_addr -ler_subl_addl.
rewrite (bigID (mem D)) /= [X in _ * X]big1 ?mulr1; last first.
  by move=> i iD; rewrite -(B_1 i); apply: eq_bigr => b _; case: (same b iD).
rewrite -big_enum cardE; apply: some_left => // [i|i]; first by rewrite mem_enum; apply: left.
by rewrite sumr_ge0 //= -(B_1 i); apply: ler_sum.
Qed.

Lemma F_prod (J : Type) (s : seq J) (x y : J -> R) : (forall j, 0 <= x j) -> (forall j, 0 <= y j) ->
  F (\prod_(j <- s) x j) (\prod_(j <- s) y j) = \prod_(j <- s) F (x j) (y j).
Proof.
move=> x0 y0; elim: s => [|j s IH]; first by rewrite !big_nil F_same ?ler01.
by rewrite !big_cons F_mul ?IH // prodr_ge0.
Qed.

Lemma coins_power : \sum_x F (product u x) (product u' x) <= c ^+ #|D|.
Proof.
under eq_bigr => x _ do rewrite /product F_prod //.
rewrite -(bigA_distr_bigA (fun i b => F (u i b) (u' i b))) (bigID (mem D)) /= [X in _ * X]big1 ?mulr1; last first.
  move=> i iD; rewrite -(B_1 i); apply: eq_bigr => b _; case: (same b iD) => e1 ->.
  by rewrite e1 F_same // -e1.
rewrite -prodr_const; apply: ler_prod => i iD; rewrite near // andbT.
by apply: sumr_ge0 => b _; apply: F_ge0.
Qed.
End Coins.
End Rounds.

Section Bits.
Variables (R : realFieldType) (I : finType) (F : R -> R -> R) (K e : R).
Hypothesis F_ge0 : forall p q, 0 <= p -> 0 <= q -> 0 <= F p q.
Hypothesis F_mul : forall p q p' q', 0 <= p -> 0 <= q -> 0 <= p' -> 0 <= q' -> F (p * p') (q * q') = F p q * F p' q'.
Hypothesis F_same : forall p, 0 <= p -> F p p = p.
Hypothesis K_ge0 : 0 <= K.
Hypothesis to_delta : forall p q, 0 <= p -> 0 <= q -> (q = 0 -> p = 0) -> p - e * q <= K * F p q.
Hypothesis e_ge0 : 0 <= e.

(* Tables: level n of round r is released with probability p r n; a user of d items gives k r d steps to each; the mass
   that is taken off, which shrinks with the steps. *)
Variables (p : nat -> nat -> R) (k : nat -> nat -> nat) (o : nat -> nat -> nat -> R).
Hypothesis p_01 : forall r n, 0 <= p r n <= 1.
Hypothesis o_ge0 : forall r d n, 0 <= o r d n.
Hypothesis o_fits : forall r d n, o r d n <= p r (n + k r d)%N - p r n.
Definition coin r n (b : bool) : R := if b then p r n else 1 - p r n.
(* B- and B+ of bits.md, and one of them on the values that the other takes. *)
Definition below r d n (b : bool) : R := if b then p r n else 1 - p r n - o r d n.
Definition above r d n (b : bool) : R := if b then p r (n + k r d)%N - o r d n else 1 - p r (n + k r d)%N.
Definition on (B A : bool -> R) b : R := if B b == 0 then 0 else A b.

(* What the accountant computes of a table: at every level, in both directions. *)
Variables (D0 : nat -> nat) (m c : nat -> nat -> R) (M C : nat -> R).
Definition costs r d n (A B : bool -> R) :=
  o r d n + \sum_(b | B b == 0) A b <= m r d /\ \sum_b F (on B A b) (B b) <= c r d.
Hypothesis bound : forall r d n, (0 < d <= D0 r)%N ->
  costs r d n (below r d n) (above r d n) /\ costs r d n (above r d n) (below r d n).
Hypothesis M_bound : forall r d, (d <= D0 r)%N -> m r d *+ d <= M r.
Hypothesis C_bound : forall r d, (d <= D0 r)%N -> c r d ^+ d <= C r.
Hypothesis m_ge0 : forall r d, 0 <= m r d.
Hypothesis C_ge0 : forall r, 0 <= C r.

(* A user's sample of a round: of the user, its coins, and what all rounds so far have shown. *)
Local Notation X := {ffun I -> bool}.
Variables (N : Type) (sample : N -> seq X -> {set I}).
Hypothesis sample_D0 : forall u h, (#|sample u h| <= D0 (size h))%N.
Definition level (us : seq N) h i : nat := \sum_(u <- us | i \in sample u h) k (size h) #|sample u h|.
Definition law us h : X -> R := product (fun i => coin (size h) (level us h i)).

Lemma level_cons u us h i :
  level (u :: us) h i = (level us h i + if i \in sample u h then k (size h) #|sample u h| else 0)%N.
Proof. by rewrite /level big_cons; case: ifP => _; rewrite ?addn0 // addnC. Qed.

Lemma coin_1 r n : \sum_b coin r n b = 1.
Proof. by rewrite big_bool /= addrC subrK. Qed.

Lemma coin_ge0 r n b : 0 <= coin r n b.
Proof. by case/andP: (p_01 r n) => p0 p1; case: b; rewrite //= subr_ge0. Qed.

Lemma below_fits r d n b : 0 <= below r d n b <= coin r n b.
Proof.
case/andP: (p_01 r n) => p0 p1; case/andP: (p_01 r (n + k r d)) => q0 q1; have ol := o_fits r d n.
case: b => /=; first by rewrite p0 lexx.
rewrite ler_subl_addr ler_addl o_ge0 andbT subr_ge0; apply: le_trans ol _; exact: ler_sub.
Qed.

Lemma above_fits r d n b : 0 <= above r d n b <= coin r (n + k r d) b.
Proof.
case/andP: (p_01 r n) => p0 p1; case/andP: (p_01 r (n + k r d)) => q0 q1; have ol := o_fits r d n.
case: b => /=; last by rewrite subr_ge0 q1 lexx.
by rewrite ler_subl_addr ler_addl o_ge0 andbT subr_ge0 (le_trans ol) // ler_subl_addr ler_addl.
Qed.

Section NewUser.
Variables (us : seq N) (v : N).

(* Both directions at once: t says that P is the law with v. *)
Section Direction.
Variable t : bool.
Definition measure (t : bool) := if t then above else below.
Definition with_v (t : bool) := law (if t then v :: us else us).
Definition at_v (w : nat -> nat -> nat -> bool -> R) h i : bool -> R :=
  let r := size h in if i \in sample v h then w r #|sample v h| (level us h i) else coin r (level us h i).
Definition lo h : X -> R := product (at_v (fun r d n => on (measure (~~ t) r d n) (measure t r d n)) h).
Definition lo' h : X -> R := product (at_v (measure (~~ t)) h).

Lemma measure_fits s h i b : 0 <= at_v (measure s) h i b <= coin (size h) (level (if s then v :: us else us) h i) b.
Proof.
rewrite /at_v; case: s => /=; rewrite ?level_cons; case: ifP => _; rewrite ?addn0 ?coin_ge0 ?lexx //.
  exact: above_fits.
exact: below_fits.
Qed.

Lemma on_le B A b : 0 <= A b -> 0 <= on B A b <= A b.
Proof. by rewrite /on; case: ifP => _ A0; rewrite ?lexx ?A0. Qed.

Lemma lo_fits h i b : 0 <= at_v (fun r d n => on (measure (~~ t) r d n) (measure t r d n)) h i b <=
  coin (size h) (level (if t then v :: us else us) h i) b.
Proof.
have := measure_fits t h i b; rewrite /at_v; case: ifP => _ // /andP[A0 A1].
by have /andP[-> /le_trans -> //] := on_le (measure (~~ t) (size h) #|sample v h| (level us h i)) A0.
Qed.

Lemma measure_sum s r d n : \sum_b measure s r d n b = 1 - o r d n.
Proof.
by rewrite big_bool; case: s => /=; [rewrite addrC addrA subrK | rewrite addrA [p r n + _]addrC subrK].
Qed.

Lemma product_le (w w' : I -> bool -> R) x : (forall i b, 0 <= w i b <= w' i b) -> 0 <= product w x <= product w' x.
Proof.
move=> ww; apply/andP; split; first by apply: prodr_ge0 => i _; case/andP: (ww i (x i)).
by apply: ler_prod => i _.
Qed.

Lemma one_way n (f : seq X -> R) : (forall h, 0 <= f h <= 1) ->
  mean (with_v t) n f [::] <= e * mean (with_v (~~ t)) n f [::] + (\sum_(r < n) M r + K * \prod_(r < n) C r).
Proof.
move=> f01; apply: (adaptive_powers F_ge0 F_mul F_same K_ge0 to_delta e_ge0 (lo := lo) (lo' := lo')) => //.
- by move=> h x; case/andP: (product_le x (lo_fits h)).
- by move=> h x; case/andP: (product_le x (measure_fits (~~ t) h)).
- by move=> h x; case/andP: (product_le x (lo_fits h)).
- by move=> h x; case/andP: (product_le x (measure_fits (~~ t) h)).
- by move=> h; apply: product_1 => i; apply: coin_1.
- move=> h x /eqP/prodf_eq0[i _ /eqP z]; apply/eqP/prodf_eq0; exists i => //.
  by move: z; rewrite /at_v; case: ifP => _ z; rewrite ?z // /on z eqxx.
- move=> h; apply: le_trans (M_bound (sample_D0 v h)).
  apply: (coins_off (D := sample v h) (u' := at_v (measure (~~ t)) h)) => [i b|i b|i|i b iD|i iD|].
  + by case/andP: (lo_fits h i b).
  + by case/andP: (lo_fits h i b).
  + exact: coin_1.
  + by rewrite /at_v (negbTE iD); split=> //; case: (t); rewrite /= ?level_cons ?(negbTE iD) ?addn0.
  + rewrite /at_v iD; set r := size h; set d := #|_|; set l := level us h i.
    have d0 : (0 < d <= D0 r)%N by rewrite sample_D0 andbT; apply/card_gt0P; exists i.
    have [b1 b2] := bound l d0.
    have cost : costs r d l (measure t r d l) (measure (~~ t) r d l) by case: (t).
    have [c1 _] := cost; rewrite ler_subl_addr.
    set S := \sum_b _; suff <- : S + (o r d l + \sum_(b | measure (~~ t) r d l b == 0) measure t r d l b) = 1.
      by rewrite ler_add2l.
    rewrite addrCA [S + _]addrC; have := measure_sum t r d l.
    rewrite (bigID (fun b => measure (~~ t) r d l b == 0)) /= => E.
    suff -> : S = \sum_(b | measure (~~ t) r d l b != 0) measure t r d l b by rewrite E addrC subrK.
    by rewrite [RHS]big_mkcond; apply: eq_bigr => b _; rewrite /on; case: eqP.
  + exact: m_ge0.
- move=> h; apply: le_trans (C_bound (sample_D0 v h)).
  apply: (coins_power F_ge0 F_mul F_same (D := sample v h) (B := fun i => coin (size h) (level us h i)))
    => [i b|i b|i|i b iD|i iD].
  + by case/andP: (lo_fits h i b).
  + by case/andP: (measure_fits (~~ t) h i b).
  + exact: coin_1.
  + by rewrite /at_v (negbTE iD).
  + rewrite /at_v iD; set r := size h; set d := #|_|; set l := level us h i.
    have d0 : (0 < d <= D0 r)%N by rewrite sample_D0 andbT; apply/card_gt0P; exists i.
    by have [b1 b2] := bound l d0; case: (t) b1 b2 => -[_ ?] [].
Qed.
End Direction.

(* For one outcome of the orders in which users draw samples; f is 1 where the releases lie in a set. *)
Theorem bits_private n (f : seq X -> R) : (forall h, 0 <= f h <= 1) ->
  let delta := \sum_(r < n) M r + K * \prod_(r < n) C r in
  mean (law (v :: us)) n f [::] <= e * mean (law us) n f [::] + delta /\
  mean (law us) n f [::] <= e * mean (law (v :: us)) n f [::] + delta.
Proof. by move=> f01; split; [apply: (one_way true) | apply: (one_way false)]. Qed.
End NewUser.
End Bits.

Section Release.
Variables (R : realFieldType) (I : finType) (F : R -> R -> R) (K e : R).
Hypothesis F_ge0 : forall p q, 0 <= p -> 0 <= q -> 0 <= F p q.
Hypothesis F_mul : forall p q p' q', 0 <= p -> 0 <= q -> 0 <= p' -> 0 <= q' -> F (p * p') (q * q') = F p q * F p' q'.
Hypothesis F_same : forall p, 0 <= p -> F p p = p.
Hypothesis K_ge0 : 0 <= K.
Hypothesis to_delta : forall p q, 0 <= p -> 0 <= q -> (q = 0 -> p = 0) -> p - e * q <= K * F p q.
Hypothesis e_ge0 : 0 <= e.
Variables (p : nat -> nat -> R) (k : nat -> nat -> nat) (o : nat -> nat -> nat -> R).
Hypothesis p_01 : forall r n, 0 <= p r n <= 1.
Hypothesis o_ge0 : forall r d n, 0 <= o r d n.
Hypothesis o_fits : forall r d n, o r d n <= p r (n + k r d)%N - p r n.
Variables (D0 : nat -> nat) (m c : nat -> nat -> R) (M C : nat -> R).
Local Notation below := (below p o).
Local Notation above := (above p k o).
Hypothesis bound : forall r d n, (0 < d <= D0 r)%N ->
  costs F o m c r d n (below r d n) (above r d n) /\ costs F o m c r d n (above r d n) (below r d n).
Hypothesis M_bound : forall r d, (d <= D0 r)%N -> m r d *+ d <= M r.
Hypothesis C_bound : forall r d, (d <= D0 r)%N -> c r d ^+ d <= C r.
Hypothesis m_ge0 : forall r d, 0 <= m r d.
Hypothesis C_ge0 : forall r, 0 <= C r.
(* The orders in which users draw, and what is released. *)
Local Notation X := {ffun I -> bool}.
Variables (J : finType) (lam : J -> R) (N O : Type) (sample : J -> N -> seq X -> {set I}) (show : seq X -> O).
Hypothesis lam_ge0 : forall j, 0 <= lam j.
Hypothesis lam_1 : \sum_j lam j = 1.
Hypothesis sample_D0 : forall j u h, (#|sample j u h| <= D0 (size h))%N.
Definition release rounds (us : seq N) (E : pred O) : R :=
  Ex lam (fun j => mean (law p k (sample j) us) rounds (fun h => (E (show h))%:R) [::]).

(* The theorem of bits.md. *)
Theorem bits_release rounds us v (E : pred O) :
  let delta := \sum_(r < rounds) M r + K * \prod_(r < rounds) C r in
  release rounds (v :: us) E <= e * release rounds us E + delta /\
  release rounds us E <= e * release rounds (v :: us) E + delta.
Proof.
have f01 h : 0 <= ((E (show h))%:R : R) <= 1 by case: (E _); rewrite ?ler01 ?lexx ?ler01.
have each j := bits_private F_ge0 F_mul F_same K_ge0 to_delta e_ge0 p_01 o_ge0 o_fits bound M_bound C_bound m_ge0 C_ge0
  (sample_D0 j) us v rounds f01.
by split; apply: (mixture lam_ge0 lam_1) => j; case: (each j).
Qed.
End Release.
