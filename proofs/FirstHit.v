(* Choices that a user takes part in up to its first hit: dpbeam/accounting/first_hit.py, "Theorem".
   Over the real numbers of Coq's standard library, whose axioms scripts/prove prints. *)
Require Import Reals Lra List.
Open Scope R_scope.

Section FirstHit.
Variable e0 : R.
Hypothesis e0_pos : 0 < e0.
Let a := exp e0 - 1.

Lemma exp_ge x : 1 + x <= exp x.
Proof. destruct (Req_dec x 0) as [->|n]; [rewrite exp_0; lra | left; apply exp_ineq1; exact n]. Qed.

Lemma a_pos : 0 < a.
Proof. unfold a; assert (H := exp_ineq1 e0 ltac:(lra)); lra. Qed.

(* The bound: V of the module. *)
Definition V (e : R) : R :=
  if Rle_dec 0 (e + e0) then (1 - exp (- e0)) * exp (- (e + e0) / a) else 1 - exp e.

Lemma V_high e : 0 <= e + e0 -> V e = (1 - exp (- e0)) * exp (- (e + e0) / a).
Proof. intro H; unfold V; destruct (Rle_dec 0 (e + e0)); [reflexivity | contradiction]. Qed.

Lemma V_low e : e + e0 < 0 -> V e = 1 - exp e.
Proof. intro H; unfold V; destruct (Rle_dec 0 (e + e0)); [lra | reflexivity]. Qed.

Lemma shrink : exp (- e0) < 1.
Proof. rewrite <- exp_0; apply exp_increasing; lra. Qed.

Lemma shrink_a : 1 - exp (- e0) = a * exp (- e0).
Proof. unfold a; rewrite Rmult_minus_distr_r, <- exp_plus, Rplus_opp_r, exp_0; ring. Qed.

(* V is above the divergence of nothing. *)
Lemma V_above e : 1 - exp e <= V e.
Proof.
destruct (Rle_dec 0 (e + e0)) as [H|H]; [|rewrite V_low; lra].
rewrite V_high by exact H; set (y := e + e0) in *.
assert (Ey : exp e = exp (- e0) * exp y) by (unfold y; rewrite <- exp_plus; f_equal; ring).
assert (A := a_pos); assert (S := shrink); assert (P := exp_pos (- e0)).
assert (B := exp_ge (- y / a)); assert (C := exp_ge y).
assert ((1 - exp (- e0)) * (1 + - y / a) <= (1 - exp (- e0)) * exp (- y / a)) by (apply Rmult_le_compat_l; lra).
assert ((1 - exp (- e0)) * (1 + - y / a) = 1 - exp (- e0) - y * exp (- e0)).
  { rewrite shrink_a; unfold Rdiv.
    replace (a * exp (- e0) * (1 + - y * / a)) with (a * exp (- e0) - y * exp (- e0) * (a * / a)) by ring.
    rewrite Rinv_r by lra; ring. }
rewrite Ey; nra.
Qed.

(* One round: the chosen item is v's with probability p without v; with v p (1 + a) / (1 + p a). *)
Lemma one_round p e : 0 <= p <= 1 ->
  p * Rmax 0 (1 - exp e * ((1 + a) / (1 + p * a))) + (1 - p) * V (e - ln (1 + p * a)) <= V e.
Proof.
intros [p0 p1]; assert (A := a_pos); assert (D : 1 <= 1 + p * a) by nra.
assert (E0 : 1 + a = exp e0) by (unfold a; ring).
set (u := ln (1 + p * a)).
assert (Eu : exp u = 1 + p * a) by (apply exp_ln; lra).
assert (u0 : 0 <= u) by (unfold u; rewrite <- ln_1; destruct (Req_dec (1 + p * a) 1) as [->|n]; [lra | left; apply ln_increasing; lra]).
assert (first : exp e * ((1 + a) / (1 + p * a)) = exp (e + e0 - u)).
  { rewrite E0, <- Eu; unfold Rdiv; rewrite <- exp_Ropp, <- !exp_plus; f_equal; ring. }
rewrite first.
assert (next : exp (e - u) * (1 + p * a) = exp e) by (rewrite <- Eu, <- exp_plus; f_equal; ring).
assert (hit : exp (e + e0 - u) = exp (e - u) * (1 + a)) by (rewrite E0, <- exp_plus; f_equal; ring).
destruct (Rle_dec 0 (e - u + e0)) as [H|H].
- (* v's item cannot be told: its share is gained *)
  assert (M : Rmax 0 (1 - exp (e + e0 - u)) = 0).
    { apply Rmax_left; assert (G := exp_ge (e + e0 - u)); lra. }
  rewrite M, Rmult_0_r, Rplus_0_l, (V_high (e - u)), (V_high e) by lra.
  replace (- (e - u + e0) / a) with (u / a + - (e + e0) / a) by (field; lra); rewrite exp_plus.
  assert (S := shrink); assert (Q := exp_pos (- (e + e0) / a)).
  assert (K : (1 - p) * exp (u / a) <= 1).
    { destruct (Req_dec p 1) as [->|n]; [lra|].
      assert (ua : u <= p * a) by (assert (G := exp_ge u); rewrite Eu in G; lra).
      assert (ex : exp (u / a) <= exp p).
        { destruct (Req_dec (u / a) p) as [->|n']; [lra|]; left; apply exp_increasing.
          assert (u / a <= p) by (apply (Rmult_le_reg_r a); [lra|]; unfold Rdiv; rewrite Rmult_assoc, Rinv_l; lra); lra. }
      assert (G := exp_ge (- p)); assert (T : exp p * exp (- p) = 1) by (rewrite <- exp_plus, Rplus_opp_r; apply exp_0).
      assert (P := exp_pos p); nra. }
  assert (0 <= (1 - exp (- e0)) * exp (- (e + e0) / a)) by (apply Rmult_le_pos; lra); nra.
- (* the bound is that of nothing, and the sum is 1 - exp e *)
  assert (M : Rmax 0 (1 - exp (e + e0 - u)) = 1 - exp (e + e0 - u)).
    { apply Rmax_right; assert (exp (e + e0 - u) < 1) by (rewrite <- exp_0; apply exp_increasing; lra); lra. }
  rewrite M, (V_low (e - u)) by lra; apply Rle_trans with (2 := V_above e).
  rewrite hit; nra.
Qed.

(* A run up to the hit, as a tree: each round has its p, given what was chosen before; Mix is such a choice, of the same
   law with v and without. Its divergence at e, by the hit alone (`first_hit.py` says why that is all that matters). *)
Inductive run : Set := Ends | Round (p : R) (goes_on : run) | Mix (q : R) (one other : run).
Fixpoint fits (r : run) : Prop :=
  match r with Ends => True | Round p rest => 0 <= p <= 1 /\ fits rest
  | Mix q one other => 0 <= q <= 1 /\ fits one /\ fits other end.
Fixpoint divergence (r : run) (e : R) : R :=
  match r with
  | Ends => Rmax 0 (1 - exp e)
  | Round p rest =>
      p * Rmax 0 (1 - exp e * ((1 + a) / (1 + p * a))) + (1 - p) * divergence rest (e - ln (1 + p * a))
  | Mix q one other => q * divergence one e + (1 - q) * divergence other e
  end.

(* V is not negative, so it is above where a run ends. *)
Lemma V_ge0 e : 0 <= V e.
Proof.
destruct (Rle_dec 0 (e + e0)) as [H|H].
- rewrite V_high by exact H; assert (S := shrink); apply Rmult_le_pos; [lra | left; apply exp_pos].
- rewrite V_low by lra; assert (exp e < 1) by (rewrite <- exp_0; apply exp_increasing; lra); lra.
Qed.

(* Any number of rounds costs no more than V. *)
Theorem first_hit r e : fits r -> divergence r e <= V e.
Proof.
revert e; induction r as [|p rest IH|q one IH1 other IH2]; intros e; simpl.
- intros _; apply Rmax_lub; [apply V_ge0 | apply V_above].
- intros [[p0 p1] F]; eapply Rle_trans; [|apply (one_round p e); split; assumption].
  apply Rplus_le_compat_l, Rmult_le_compat_l; [lra | apply IH; exact F].
- intros [[q0 q1] [F1 F2]]; assert (H1 := IH1 e F1); assert (H2 := IH2 e F2); nra.
Qed.

(* The other direction, where a user is added: what was chosen with v against what was chosen without. *)
Fixpoint reverse (r : run) (e : R) : R :=
  match r with
  | Ends => Rmax 0 (1 - exp e)
  | Round p rest =>
      p * Rmax 0 ((1 + a) / (1 + p * a) - exp e) + (1 - p) / (1 + p * a) * reverse rest (e + ln (1 + p * a))
  | Mix q one other => q * reverse one e + (1 - q) * reverse other e
  end.

Lemma max_swap x : Rmax 0 x = x + Rmax 0 (- x).
Proof. unfold Rmax; destruct (Rle_dec 0 x), (Rle_dec 0 (- x)); lra. Qed.

Lemma max_scale k x : 0 <= k -> k * Rmax 0 x = Rmax 0 (k * x).
Proof. intro; rewrite <- RmaxRmult by assumption; f_equal; ring. Qed.

Lemma reverse_divergence r e : fits r -> reverse r e = 1 - exp e + exp e * divergence r (- e).
Proof.
assert (A := a_pos); revert e; induction r as [|p rest IH|q one IH1 other IH2]; intros e; simpl.
- intros _; rewrite (max_swap (1 - exp e)), max_scale by (left; apply exp_pos).
  rewrite Rmult_minus_distr_l, <- exp_plus, Rplus_opp_r, exp_0; do 2 f_equal; ring.
- intros [[p0 p1] F]; rewrite IH by exact F; assert (D : 1 <= 1 + p * a) by nra.
  rewrite exp_plus, exp_ln by lra; replace (- (e + ln (1 + p * a))) with (- e - ln (1 + p * a)) by ring.
  set (rec := divergence rest _); rewrite (max_swap (_ - exp e)).
  assert (E : exp e * Rmax 0 (1 - exp (- e) * ((1 + a) / (1 + p * a))) = Rmax 0 (- ((1 + a) / (1 + p * a) - exp e))).
    { rewrite max_scale by (left; apply exp_pos); f_equal.
      rewrite Rmult_minus_distr_l, <- Rmult_assoc, <- exp_plus, Rplus_opp_r, exp_0; ring. }
  rewrite <- E; field; lra.
- intros [[q0 q1] [F1 F2]]; rewrite IH1, IH2 by assumption; ring.
Qed.

(* U of the module. *)
Theorem first_hit_added r e : fits r -> reverse r e <= 1 - exp e + exp e * V (- e).
Proof.
intro F; rewrite reverse_divergence by exact F; assert (H := first_hit r (- e) F); assert (P := exp_pos e); nra.
Qed.
End FirstHit.
