(* Rounds of weights and thresholds: Basic, DP-SIPS, MAD and MAD2R (docs/explanation/privacy.md). Each round compares its
   own noisy weights with its own threshold; whatever earlier rounds have shown may choose its weights. *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Probability Gaussian Identical.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Rounds.
Variables (R : realFieldType) (I Z : finType) (zeta val : nat -> Z -> R).
Hypothesis zeta_ge0 : forall q z, 0 <= zeta q z.
Hypothesis zeta_1 : forall q, \sum_z zeta q z = 1.
Local Notation V := (V Z).
Local Notation nu n := (@nu R Z zeta n).
Local Notation noise n := (@noise R Z val n).
Local Notation hist := (hist R I).
Local Notation releases := (releases I).

(* What rounds before the last have shown does not look at the last. *)
Lemma forget (s : hist -> I -> R) (f : hist -> R) m n : (m <= n)%N ->
  Ex (prod_mu (nu n)) (fun w : {ffun I -> V n} => f (take m (run (noise n) s w n))) =
  Ex (prod_mu (nu m)) (fun w : {ffun I -> V m} => f (run (noise m) s w m)).
Proof.
elim: n => [|n IH]; first by rewrite leqn0 => /eqP ->.
rewrite leq_eqVlt => /orP[/eqP ->|]; first by apply: eq_bigr => w _; rewrite take_oversize // size_run.
rewrite ltnS => mn; rewrite (Ex_last zeta val n s (fun h => f (take m h))) -(IH mn); apply: eq_bigr => w _.
congr (_ * _); rewrite /next /Ex.
under eq_bigr => z _ do rewrite -cats1 takel_cat ?size_run //.
by rewrite -mulr_suml prod_mu_1 ?mul1r.
Qed.

(* Two worlds as in Identical.v: s without v, x what v adds; c the items of the others' lists, cv those of v's. *)
Variables (s x : hist -> releases -> I -> R) (c cv : hist -> releases -> {set I}).
Definition novel h rel : {set I} := cv h rel :\: c h rel.
Variables (D0 : nat -> nat) (top : nat -> nat -> R).
Hypothesis x_norm : forall h rel, norm2 (x h rel) <= 1.
Hypothesis novel_D0 : forall h rel, (#|novel h rel| <= D0 (size h))%N.
(* What one of t novel items weighs at most, with v and without. *)
Hypothesis novel_top : forall h rel i, i \in novel h rel ->
  s h rel i + x h rel i <= top (size h) #|novel h rel| /\ s h rel i <= top (size h) #|novel h rel|.
Variables (cross : nat -> seq R -> bool) (rho slack : nat -> R).
Hypothesis test : forall k g, size g = k.+1 -> cross k g -> rho k <= nth 0 g k + slack k.

Variables (p : nat -> nat -> R) (dT : nat -> R).
Hypothesis A2 : forall k t, (t <= D0 k)%N ->
  [/\ Pr (zeta k) (fun z => rho k <= top k t + val k z + slack k) <= p k t, p k t <= 1 & 1 - dT k <= (1 - p k t) ^+ t].

Variable rounds : nat.
Local Notation rd := (reading cross c).

(* One round: given the past, one of its novel items passes by its own noise. *)
Lemma one_rare k (sums : hist -> I -> R) (g : hist) : size g = k ->
  (forall i, i \in novel g (rd g) -> sums g i <= top k #|novel g (rd g)|) ->
  next zeta val k sums (fun h => [exists i, bad_at cross c cv h k i]%:R) g <= dT k.
Proof.
move=> gk small; have Dk : (#|novel g (rd g)| <= D0 k)%N by rewrite -gk.
have [Ap p1 pd] := A2 Dk; rewrite /next -PrE.
apply: le_trans (some_item (zeta_ge0 k) (zeta_1 k) Ap p1 (leqnn _) pd).
apply: (Pr_mono (prod_mu_ge0 (zeta_ge0 k))) => z /existsP[i /and3P[iv ic cr]].
set h := rcons g _ in iv ic cr; have hg : take k h = g by rewrite /h -cats1 take_size_cat.
have rg : read cross c k h = rd g by rewrite /reading gk -(read_take cross c h (leqnn k)) hg.
rewrite hg rg in iv ic; have iT : i \in novel g (rd g) by rewrite inE ic.
apply/existsP; exists i; rewrite iT /=.
have hk : take k.+1 h = h by rewrite take_oversize // size_rcons gk.
rewrite hk in cr; have := test _ cr; rewrite /own size_map size_rcons gk => /(_ erefl).
rewrite /h map_rcons nth_rcons size_map gk ltnn eqxx ffunE => /le_trans; apply.
by rewrite ler_add2r ler_add2r small.
Qed.

Lemma all_rare (sums : hist -> I -> R) :
  (forall g i, i \in novel g (rd g) -> sums g i <= top (size g) #|novel g (rd g)|) ->
  Pr (prod_mu (nu rounds)) (fun w : {ffun I -> V rounds} => bad rounds cross c cv (run (noise rounds) sums w rounds)) <=
  \sum_(k < rounds) dT k.
Proof.
move=> small; apply: le_trans (Pr_some (prod_mu_ge0 (@nu_ge0 R Z zeta zeta_ge0 rounds)) _) _.
apply: ler_sum => k _; pose f h : R := [exists i, bad_at cross c cv h k i]%:R.
have fE w : f (run (noise rounds) sums w rounds) = f (take k.+1 (run (noise rounds) sums w rounds)).
  rewrite /f; congr (_ _)%:R; apply: eq_existsb => i; rewrite /bad_at !take_take // ?leqnSn //.
  by rewrite -(read_take cross c _ (leqnSn k)).
rewrite PrE; have -> : Ex (prod_mu (nu rounds)) (fun w : {ffun I -> V rounds} => f (run (noise rounds) sums w rounds)) =
    Ex (prod_mu (nu rounds)) (fun w : {ffun I -> V rounds} => f (take k.+1 (run (noise rounds) sums w rounds))).
  by apply: eq_bigr => w _; rewrite -fE.
rewrite (forget sums f (ltn_ord k)) (Ex_last zeta val k sums f).
rewrite -[X in _ <= X]mul1r -(prod_mu_1 I (nu_1 zeta_1 k)) mulr_suml; apply: ler_sum => w _; apply: ler_wpmul2l.
  exact/prod_mu_ge0/nu_ge0.
apply: one_rare; first exact: size_run.
by move=> i iT; have := small _ _ iT; rewrite size_run.
Qed.

(* What one Gaussian mechanism costs, integer draws, and the tests of all rounds. *)
Variables (D : R -> R -> R) (tau total e : R) (prec : nat -> R).
Hypothesis D_base : forall c e x, 0 <= c -> 0 <= e -> 0 <= x <= 1 -> x <= e * x + D c e.
Hypothesis D_ge0 : forall c e, 0 <= c -> 0 <= e -> 0 <= D c e.
Hypothesis tau_ge0 : 0 <= tau.
Hypothesis e_ge0 : 0 <= e.
Hypothesis prec_ge0 : forall q, 0 <= prec q.
Hypothesis one_round : forall n (s x : I -> R) c e (A A' : {ffun I -> R} -> R),
  prec n * norm2 x <= c -> 0 <= e -> (forall y, 0 <= A y <= 1) -> (forall y, 0 <= A' y <= 1) ->
  (forall y e', 0 <= e' -> A' y <= e' * A y + D (c - prec n * norm2 x) e') ->
  Ex (prod_mu (zeta n)) (fun z : {ffun I -> Z} => A' [ffun i => s i + x i + val n (z i)]) <=
  e * Ex (prod_mu (zeta n)) (fun z : {ffun I -> Z} => A [ffun i => s i + val n (z i)]) + (D c e + tau).
Hypothesis total_ge0 : 0 <= total.
Hypothesis total_prec : \sum_(q < rounds) prec q <= total.

Theorem rounds_private (O : Type) (show : hist * releases -> O) :
  let P (w : {ffun I -> V rounds}) := show (world (noise rounds) cross s c w rounds) in
  let P' (w : {ffun I -> V rounds}) := show (world (noise rounds) cross (fun h rel i => s h rel i + x h rel i)
    (fun h rel => c h rel :|: cv h rel) w rounds) in
  let delta := D total e + tau *+ rounds + \sum_(k < rounds) dT k in
  forall o : pred O,
    Pr (prod_mu (nu rounds)) (fun w => o (P' w)) <= e * Pr (prod_mu (nu rounds)) (fun w => o (P w)) + delta /\
    Pr (prod_mu (nu rounds)) (fun w => o (P w)) <= e * Pr (prod_mu (nu rounds)) (fun w => o (P' w)) + delta.
Proof.
move=> P P' delta o.
have a1 := @A1 R I Z zeta val zeta_ge0 zeta_1 D tau prec D_base D_ge0 tau_ge0 one_round rounds e total prec_ge0 e_ge0
  total_ge0.
apply: (identical (@nu_ge0 R Z zeta zeta_ge0 rounds) e_ge0 a1 _ _ _ show o).
- move=> h hr; apply: le_trans total_prec; rewrite /spent hr; apply: ler_sum => q _.
  by rewrite -[X in _ <= X]mulr1; apply: ler_wpmul2l; [apply: prec_ge0 | apply: x_norm].
- by apply: all_rare => g i /novel_top[_ le]; apply: le.
- by apply: all_rare => g i /novel_top[le _]; apply: le.
Qed.
End Rounds.
