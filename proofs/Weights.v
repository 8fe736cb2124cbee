(* The weights of Basic, and of a round of DP-SIPS: every item of a user of d items gets x d, d (x d)^2 <= 1
   (docs/explanation/privacy.md, "The weightings"). *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Probability Gaussian.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Uniform.
Variables (R : realFieldType) (I : finType) (x : nat -> R).
Hypothesis x_ge0 : forall d, 0 <= x d.
(* What the table of integers guarantees: dpbeam/kernels/grid.py, uniform_l2_units. *)
Hypothesis x_fits : forall d, x d ^+ 2 *+ d <= 1.
Definition uniform (D : {set I}) (i : I) : R := if i \in D then x #|D| else 0.

(* The hypotheses of Gsu.v on weights: norm, nothing outside of the sample, and the cap x d. *)
Theorem uniform_weights (D : {set I}) :
  norm2 (uniform D) <= 1 /\ forall i, [/\ 0 <= uniform D i <= x #|D| & i \notin D -> uniform D i = 0].
Proof.
split=> [|i].
  rewrite /norm2 (bigID (mem D)) /= [X in _ + X]big1 ?addr0; last first.
    by move=> i /negbTE iD; rewrite /uniform iD expr0n.
  rewrite (eq_bigr (fun=> x #|D| ^+ 2)); last by move=> i iD; rewrite /uniform iD.
  by rewrite sumr_const.
split; last by move=> /negbTE iD; rewrite /uniform iD.
by rewrite /uniform; case: ifP; rewrite ?x_ge0 ?lexx.
Qed.
End Uniform.
