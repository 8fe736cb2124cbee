(* The weights of MAD, and of both rounds of MAD2R: l2 sensitivity 1 and the weight of novel items (Chen et al. 2025,
   Lemmas B.3 and B.6), with the rounding of dpbeam/selectors/mad/kernels.py. *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Probability Gaussian.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Norms.
Variables (R : realFieldType) (I : finType).

Lemma norm2_ge0 (x : I -> R) : 0 <= norm2 x.
Proof. by apply: sumr_ge0 => i _; apply: sqr_ge0. Qed.

Lemma norm2_add (x y : I -> R) : norm2 (fun i => x i + y i) = norm2 x + norm2 y + 2%:R * \sum_i x i * y i.
Proof.
rewrite /norm2 mulr_sumr -!big_split; apply: eq_bigr => i _ /=.
by rewrite sqrrD mulr_natl addrAC.
Qed.

Lemma norm2_scale (c : R) (x : I -> R) : norm2 (fun i => c * x i) = c ^+ 2 * norm2 x.
Proof. by rewrite /norm2 mulr_sumr; apply: eq_bigr => i _; rewrite exprMn. Qed.

(* The triangle inequality, without roots. *)
Lemma triangle (x y : I -> R) a b : 0 <= a -> 0 <= b -> norm2 x <= a ^+ 2 -> norm2 y <= b ^+ 2 ->
  norm2 (fun i => x i + y i) <= (a + b) ^+ 2.
Proof.
move=> a0 b0 xa yb; rewrite norm2_add sqrrD [X in _ <= X]addrAC; apply: ler_add; first exact: ler_add.
rewrite mulr_natl ler_muln2r /=; move: a0 b0; rewrite !le0r => /orP[/eqP a0|a0].
  rewrite a0 mul0r big1 // => i _; suff -> : x i = 0 by rewrite mul0r.
  move: xa; rewrite a0 expr0n /= => xa; have /eqP := le_anti (introT andP (conj xa (norm2_ge0 x))).
  by rewrite psumr_eq0 => [/allP/(_ i)|j _]; rewrite ?sqr_ge0 // mem_index_enum sqrf_eq0 => /(_ isT)/eqP.
case/orP=> [/eqP b0|b0].
  rewrite b0 mulr0 big1 // => i _; suff -> : y i = 0 by rewrite mulr0.
  move: yb; rewrite b0 expr0n /= => yb; have /eqP := le_anti (introT andP (conj yb (norm2_ge0 y))).
  by rewrite psumr_eq0 => [/allP/(_ i)|j _]; rewrite ?sqr_ge0 // mem_index_enum sqrf_eq0 => /(_ isT)/eqP.
have := norm2_ge0 (fun i => b * x i + (- a) * y i); rewrite norm2_add !norm2_scale sqrrN.
have -> : \sum_i b * x i * (- a * y i) = - (a * b * \sum_i x i * y i).
  by rewrite mulr_sumr -sumrN; apply: eq_bigr => i _; rewrite mulNr mulrN mulrACA [b * a]mulrC.
rewrite mulrN subr_ge0 => cs.
have : 2%:R * (a * b * \sum_i x i * y i) <= 2%:R * (a * b * (a * b)).
  apply: le_trans cs _; rewrite [X in _ <= X]mulr_natl mulr2n; apply: ler_add.
    by apply: le_trans (ler_wpmul2l (sqr_ge0 b) xa) _; rewrite -exprMn expr2 [b * a]mulrC.
  by apply: le_trans (ler_wpmul2l (sqr_ge0 a) yb) _; rewrite -exprMn expr2.
by rewrite ler_pmul2l ?ltr0n // ler_pmul2l ?mulr_gt0.
Qed.

Lemma triangles (U : Type) (s : seq U) (P : pred U) (z : U -> I -> R) b : (forall u, P u -> 0 <= b u) ->
  (forall u, P u -> norm2 (z u) <= b u ^+ 2) ->
  norm2 (fun i => \sum_(u <- s | P u) z u i) <= (\sum_(u <- s | P u) b u) ^+ 2.
Proof.
move=> b0 zb; elim: s => [|u s IH].
  by rewrite big_nil /norm2 big1 ?expr0n // => i _; rewrite big_nil expr0n.
rewrite [X in _ <= X ^+ 2]big_cons; case: (boolP (P u)) => Pu.
  have -> : norm2 (fun i => \sum_(t <- u :: s | P t) z t i) = norm2 (fun i => z u i + \sum_(t <- s | P t) z t i).
    by apply: eq_bigr => i _; rewrite big_cons Pu.
  by apply: triangle; rewrite ?b0 ?zb ?sumr_ge0.
by have -> : norm2 (fun i => \sum_(t <- u :: s | P t) z t i) = norm2 (fun i => \sum_(t <- s | P t) z t i)
  by apply: eq_bigr => i _; rewrite big_cons (negbTE Pu).
Qed.
End Norms.

Section Mad.
Variables (R : realFieldType) (I : finType) (U : Type) (S : U -> {set I}) (adaptive : pred U).
(* Initial weight and coefficient of an adaptive user, direct weight of any; biases are a part of `direct`. *)
Variables (x co : U -> R) (direct : U -> I -> R) (tau : R) (ratio : R -> R).
Definition init (us : seq U) i : R := \sum_(u <- us | adaptive u && (i \in S u)) x u.
Definition rerouted us u : R := co u * \sum_(j in S u) ratio (init us j).
Definition weight us i : R := Num.min (init us i) tau + \sum_(u <- us | adaptive u && (i \in S u)) rerouted us u +
  \sum_(u <- us | i \in S u) (direct u i - if adaptive u then x u else 0).

Hypothesis x_ge0 : forall u, 0 <= x u.
Hypothesis co_ge0 : forall u, 0 <= co u.
Hypothesis ratio_mono : forall y y', y <= y' -> ratio y <= ratio y'.
Hypothesis ratio_01 : forall y, 0 <= ratio y <= 1.
Hypothesis direct_norm : forall u, norm2 (direct u) <= 1.
Hypothesis direct_out : forall u i, i \notin S u -> direct u i = 0.

Lemma init_cons u us i : init (u :: us) i = init us i + if adaptive u && (i \in S u) then x u else 0.
Proof. by rewrite /init big_cons; case: ifP => _; rewrite ?addr0 // addrC. Qed.

Lemma init_ge0 us i : 0 <= init us i.
Proof. by apply: sumr_ge0 => u _; apply: x_ge0. Qed.

Lemma init_mono u us i : init us i <= init (u :: us) i.
Proof. by rewrite init_cons ler_addl; case: ifP. Qed.

Section NewUser.
Variables (us : seq U) (v : U).
Hypothesis adaptive_v : adaptive v.
(* What v adds to the excess of an item. *)
Definition excess (y : R) : R := y - Num.min y tau.
Definition g i : R := excess (init (v :: us) i) - excess (init us i).

Lemma min_moves i : Num.min (init (v :: us) i) tau - Num.min (init us i) tau = (if i \in S v then x v else 0) - g i.
Proof.
set m := Num.min (init us i) tau; set m' := Num.min _ tau; set d := (if _ then _ else _).
suff -> : g i = d - (m' - m) by rewrite subKr.
rewrite /g /excess -/m -/m' init_cons adaptive_v /= -/d; apply: (addIr (init us i - m)); rewrite subrK.
by rewrite opprB addrACA [m - m' + _]addrC addKr [d + _]addrC.
Qed.

Lemma g_bound i : 0 <= g i <= if i \in S v then x v else 0.
Proof.
set d := (if _ then _ else _); set y := init us i.
have d0 : 0 <= d by rewrite /d; case: ifP.
set m := Num.min y tau; set m' := Num.min (y + d) tau.
have -> : g i = d - (m' - m).
  by have := min_moves i; rewrite init_cons adaptive_v /= -/d -/y -/m -/m' => ->; rewrite subKr.
have m'y : m' <= y + d by rewrite le_minl lexx.
have m'tau : m' <= tau by rewrite le_minl lexx orbT.
rewrite subr_ge0 ger_addl oppr_le0 subr_ge0 ler_subl_addr; apply/andP; split.
  by rewrite -ler_subl_addl /m le_minr !ler_subl_addl [d + y]addrC m'y /= (le_trans m'tau) // ler_addr.
by rewrite /m' le_minr /m !le_minl lexx ler_addl d0 orbT.
Qed.

(* Rounding of ratios costs a factor of eta at most; low is below every direct weight of v on its items. *)
Variables (eta alpha s low : R).
Hypothesis ratio_moves : forall y y', 0 <= y <= y' -> y' * ratio y' - y * ratio y <= (1 + eta) * (excess y' - excess y).
Hypothesis co_fits : forall u, adaptive u -> co u ^+ 2 *+ #|S u| <= (alpha * s * x u) ^+ 2.
Hypothesis alpha_ge0 : 0 <= alpha.
Hypothesis s_ge0 : 0 <= s.
Hypothesis eta_ge0 : 0 <= eta.
Hypothesis alpha_fits : (alpha * s * (1 + eta)) *+ 2 <= low *+ 2 - x v.
Hypothesis alpha_1 : alpha * s * (1 + eta) <= 1.
Hypothesis low_direct : forall i, i \in S v -> low <= direct v i.
Hypothesis x_fits : x v *+ #|S v| <= 1.

Definition gamma : R := \sum_i g i.

Lemma gamma_01 : 0 <= gamma <= 1.
Proof.
apply/andP; split; first by apply: sumr_ge0 => i _; case/andP: (g_bound i).
apply: le_trans x_fits; rewrite -sumr_const big_mkcond; apply: ler_sum => i _; by case/andP: (g_bound i).
Qed.

(* What a user reroutes more with v. *)
Definition more u : R := rerouted (v :: us) u - rerouted us u.
Definition dr j : R := ratio (init (v :: us) j) - ratio (init us j).

Lemma dr_ge0 j : 0 <= dr j.
Proof. by rewrite subr_ge0 ratio_mono // init_mono. Qed.

(* z: what all reroute; y: the direct weight of v, less its excess. *)
Definition z i : R := \sum_(u <- v :: us | adaptive u && (i \in S u)) rerouted (v :: us) u -
  \sum_(u <- us | adaptive u && (i \in S u)) rerouted us u.
Definition y i : R := direct v i - g i.

Lemma weight_moves i : weight (v :: us) i - weight us i = y i + z i.
Proof.
rewrite /weight opprD addrACA opprD [X in X + _ = _]addrACA min_moves -/(z i) /y [X in _ + (X - _)]big_cons adaptive_v.
case: (boolP (i \in S v)) => iv; last by rewrite direct_out // subrr addr0.
rewrite addrK addrAC; congr (_ + _).
by rewrite [direct v i - x v]addrC addrA [x v - g i]addrC addrK addrC.
Qed.

Lemma direct_less : norm2 y <= (1 - gamma * (alpha * s * (1 + eta))) ^+ 2.
Proof.
set c := alpha * s * (1 + eta); have /andP[g0 g1] := gamma_01.
apply: (@le_trans _ _ (1 - gamma * (c *+ 2))); last first.
  by rewrite sqrrB expr1n mul1r mulrnAr ler_addl sqr_ge0.
apply: (@le_trans _ _ (norm2 (direct v) - gamma * (low *+ 2 - x v))); last first.
  by apply: ler_sub; [apply: direct_norm | apply: ler_wpmul2l].
rewrite /norm2 /gamma mulr_suml -sumrB; apply: ler_sum => i _; rewrite /y sqrrB.
move: (g i) (g_bound i) => G /andP[gi0 gi1]; case: (boolP (i \in S v)) gi1 => iv gi1; last first.
  have -> : G = 0 by apply/le_anti; rewrite gi1.
  by rewrite mulr0 mul0r mul0rn expr0n /= addr0 !subr0.
rewrite -addrA ler_add2l mulrBr opprB addrC; apply: ler_sub.
  by rewrite expr2; apply: ler_wpmul2l.
by rewrite mulrnAr ler_muln2r /= [X in _ <= X]mulrC; apply: ler_wpmul2l => //; apply: low_direct.
Qed.

Lemma more_ge0 u : 0 <= more u.
Proof. by rewrite /more /rerouted -mulrBr -sumrB; apply: mulr_ge0 => //; apply: sumr_ge0 => j _; apply: dr_ge0. Qed.

(* A user's rerouted weights have norm alpha s x at most, for each unit of ratios. *)
Lemma one_reroutes u (d : R) : adaptive u -> 0 <= d ->
  norm2 (fun i => if i \in S u then co u * d else 0) <= (alpha * s * (x u * d)) ^+ 2.
Proof.
move=> au d0; rewrite /norm2 (bigID (mem (S u))) /= [X in _ + X]big1 ?addr0; last first.
  by move=> i /negbTE ->; rewrite expr0n.
rewrite (eq_bigr (fun=> (co u * d) ^+ 2)); last by move=> i ->.
rewrite sumr_const mulrA !exprMn -mulrnAl; apply: ler_wpmul2r; first exact: sqr_ge0.
by rewrite -!exprMn; apply: co_fits.
Qed.

(* Together they reroute alpha times the excess of v, (1 + eta) for rounding. *)
Lemma all_reroute : \sum_(u <- us | adaptive u) x u * (\sum_(j in S u) dr j) +
    x v * (\sum_(j in S v) ratio (init (v :: us) j)) <= gamma * (1 + eta).
Proof.
have -> : \sum_(u <- us | adaptive u) x u * (\sum_(j in S u) dr j) = \sum_j init us j * dr j.
  under eq_bigr => u _ do rewrite mulr_sumr.
  rewrite (exchange_big_dep xpredT) //=; apply: eq_bigr => j _; rewrite mulr_suml.
  by apply: eq_bigl => u.
rewrite mulr_sumr [X in _ + X]big_mkcond -big_split /gamma mulr_suml; apply: ler_sum => j _ /=.
rewrite [X in _ <= X]mulrC; apply: le_trans (ratio_moves _); last by rewrite init_ge0 init_mono.
rewrite /dr mulrBr addrAC ler_add2r init_cons adaptive_v /= mulrDl ler_add2l.
by case: (j \in S v); rewrite ?mul0r ?lexx.
Qed.

Lemma rerouted_norm : norm2 z <= (gamma * (alpha * s * (1 + eta))) ^+ 2.
Proof.
pose r u := if adaptive u then \sum_(j in S u) dr j else 0.
have r0 u : 0 <= r u by rewrite /r; case: ifP => _ //; apply: sumr_ge0 => j _; apply: dr_ge0.
pose R0 := \sum_(j in S v) ratio (init (v :: us) j).
have R00 : 0 <= R0 by apply: sumr_ge0 => j _; case/andP: (ratio_01 (init (v :: us) j)).
pose zu u i := if i \in S u then co u * r u else 0.
have zE i : z i = \sum_(u <- us | adaptive u) zu u i + if i \in S v then co v * R0 else 0.
  rewrite /z big_cons adaptive_v /=.
  have -> : \sum_(u <- us | adaptive u) zu u i = \sum_(u <- us | adaptive u && (i \in S u)) rerouted (v :: us) u -
      \sum_(u <- us | adaptive u && (i \in S u)) rerouted us u.
    rewrite -sumrB big_mkcondr; apply: eq_bigr => u au; rewrite /zu /r au; case: ifP => // _.
    by rewrite /rerouted -mulrBr -sumrB.
  case: ifP => _; last by rewrite addr0.
  by rewrite -addrA addrC.
pose a := \sum_(u <- us | adaptive u) alpha * s * (x u * r u); pose b := alpha * s * (x v * R0).
have as0 : 0 <= alpha * s by apply: mulr_ge0.
have a0 : 0 <= a by apply: sumr_ge0 => u _; rewrite !mulr_ge0.
have b0 : 0 <= b by rewrite !mulr_ge0.
have total : a + b <= gamma * (alpha * s * (1 + eta)).
  rewrite /a -mulr_sumr -mulrDr [X in _ <= X]mulrCA; apply: ler_wpmul2l => //.
  apply: le_trans all_reroute; rewrite ler_add2r le_eqVlt; apply/orP; left; apply/eqP.
  by apply: eq_bigr => u au; rewrite /r au.
apply: (@le_trans _ _ ((a + b) ^+ 2)); last first.
  by rewrite ler_sqr ?nnegrE //; [apply: addr_ge0 | apply: le_trans total; apply: addr_ge0].
have -> : norm2 z = norm2 (fun i => \sum_(u <- us | adaptive u) zu u i + if i \in S v then co v * R0 else 0).
  by apply: eq_bigr => i _; rewrite zE.
apply: triangle => //; last exact: one_reroutes.
by apply: triangles => u au; [rewrite !mulr_ge0 | apply: one_reroutes].
Qed.

Lemma adaptive_norm : norm2 (fun i => weight (v :: us) i - weight us i) <= 1.
Proof.
have -> : norm2 (fun i => weight (v :: us) i - weight us i) = norm2 (fun i => y i + z i).
  by apply: eq_bigr => i _; rewrite weight_moves.
set c := gamma * (alpha * s * (1 + eta)); have /andP[g0 g1] := gamma_01.
have k0 : 0 <= alpha * s * (1 + eta) by rewrite !mulr_ge0 // addr_ge0 ?ler01.
have c0 : 0 <= c by apply: mulr_ge0.
have c1 : c <= 1 by apply: mulr_ile1.
rewrite -[X in _ <= X](expr1n _ 2) -[1 in X in _ <= X](subrK c).
by apply: triangle; rewrite ?subr_ge0 // ?direct_less ?rerouted_norm.
Qed.
End NewUser.

(* Whatever the noise of earlier rounds chose: lists, biases and ratios are fixed when the weights of a round are. *)
Variables (eta alpha s : R) (low : U -> R).
Hypothesis ratio_moves : forall y y', 0 <= y <= y' -> y' * ratio y' - y * ratio y <= (1 + eta) * (excess y' - excess y).
Hypothesis co_fits : forall u, adaptive u -> co u ^+ 2 *+ #|S u| <= (alpha * s * x u) ^+ 2.
Hypothesis alpha_ge0 : 0 <= alpha.
Hypothesis s_ge0 : 0 <= s.
Hypothesis eta_ge0 : 0 <= eta.
Hypothesis alpha_fits : forall u, adaptive u -> (alpha * s * (1 + eta)) *+ 2 <= low u *+ 2 - x u.
Hypothesis alpha_1 : alpha * s * (1 + eta) <= 1.
Hypothesis low_direct : forall u i, adaptive u -> i \in S u -> low u <= direct u i.
Hypothesis x_fits : forall u, adaptive u -> x u *+ #|S u| <= 1.

Theorem mad_norm us v : norm2 (fun i => weight (v :: us) i - weight us i) <= 1.
Proof.
case: (boolP (adaptive v)) => av.
  exact: (adaptive_norm us av ratio_moves co_fits alpha_ge0 s_ge0 eta_ge0 (alpha_fits av) alpha_1
    (fun i => @low_direct v i av) (x_fits av)).
apply: le_trans (direct_norm v); rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigr => i _; congr (_ ^+ 2).
have same j : init (v :: us) j = init us j by rewrite init_cons (negbTE av) addr0.
rewrite /weight same !big_cons (negbTE av) /=.
rewrite (eq_bigr (rerouted us)) => [|u _]; last by rewrite /rerouted; under eq_bigr do rewrite same.
case: (boolP (i \in S v)) => iv; last by rewrite subrr direct_out.
by rewrite subr0 addrCA addrK.
Qed.

(* h t: the novel weight that the threshold of the round allows for t items. *)
Variables (top : U -> R) (h : nat -> R).
Hypothesis ratio_0 : forall y, y <= tau -> ratio y = 0.
Hypothesis x_tau : forall u, x u <= tau.
Hypothesis top_direct : forall u i, direct u i <= top u.
Hypothesis h_fits : forall u t, (t <= #|S u|)%N ->
  (if adaptive u then co u *+ (#|S u| - t) else 0) + top u <= h t.

Theorem mad_novel us v (T : {set I}) : T \subset S v -> (forall i, i \in T -> ~~ has (fun u => i \in S u) us) ->
  forall i, i \in T -> weight (v :: us) i <= h #|T|.
Proof.
move=> TS alone i iT; apply: le_trans (h_fits (subset_leq_card TS)).
have iv := subsetP TS _ iT; rewrite /weight !big_cons iv andbT.
have none (P : pred U) (F : U -> R) j : j \in T -> \sum_(u <- us | P u && (j \in S u)) F u = 0.
  by move=> jT; apply: big_hasC; apply: contraNN (alone j jT); apply: sub_has => u /andP[].
have own j : j \in T -> init (v :: us) j <= tau.
  move=> jT; rewrite init_cons /init none // add0r; case: ifP => // _.
  by apply: le_trans (x_tau v); apply: x_ge0.
rewrite none // addr0 [X in _ + (_ + X)](_ : _ = 0); last by have := none xpredT _ i iT; apply.
rewrite addr0 init_cons /init none // add0r iv andbT.
case: ifP => av; last first.
  rewrite subr0; apply: ler_add; last exact: top_direct.
  by rewrite addr0 le_minl lexx.
rewrite (elimT min_idPl (x_tau v)) [x v + _]addrC -addrA [x v + _]addrC subrK.
apply: ler_add; last exact: top_direct.
rewrite /rerouted -mulr_natr; apply: ler_wpmul2l => //.
rewrite (big_setID T) /= [X in X + _]big1 ?add0r => [|j]; last by rewrite inE => /andP[_ /own/ratio_0].
rewrite -cardsDS // -sumr_const; apply: ler_sum => j _; by case/andP: (ratio_01 (init (v :: us) j)).
Qed.
End Mad.

(* What `mad_norm` asks of the constants, for those of the paper: r and s are 1/sqrt d and 1/sqrt d_max, b is b_min. *)
Theorem mad_constants (R : realFieldType) (b r s : R) (d : nat) : 0 <= s -> s <= r -> r <= b -> s ^+ 2 *+ d <= 1 ->
  let alpha := b - s / 2%:R in
  [/\ 0 <= alpha, (alpha * s) *+ 2 <= (b * r) *+ 2 - r ^+ 2 &
    (alpha * r ^+ 2 * s ^+ 2) ^+ 2 *+ d <= (alpha * s * r ^+ 2) ^+ 2].
Proof.
move=> s0 sr rb sd alpha; have sb := le_trans sr rb; split.
- rewrite subr_ge0; apply: le_trans sb; rewrite ler_pdivr_mulr ?ltr0n // -[X in X <= _]mulr1.
  by apply: ler_wpmul2l; rewrite // ler1n.
- have -> : (alpha * s) *+ 2 = (b * s) *+ 2 - s ^+ 2.
    rewrite /alpha mulrBl mulrnBl; congr (_ - _).
    by rewrite mulrAC -expr2 -mulr_natr -mulrA mulVf ?mulr1 // pnatr_eq0.
  have E t : (b * t) *+ 2 - t ^+ 2 = b ^+ 2 - (b - t) ^+ 2.
    by rewrite sqrrB opprD opprB addrA [b ^+ 2 + _]addrC subrK.
  by rewrite !E ler_add2l ler_oppl opprK ler_sqr ?nnegrE ?subr_ge0 // ler_add2l ler_oppl opprK.
- have -> : (alpha * r ^+ 2 * s ^+ 2) ^+ 2 *+ d = (alpha * s * r ^+ 2) ^+ 2 * (s ^+ 2 *+ d).
    by rewrite mulrnAr; congr (_ *+ _); rewrite [s ^+ 2]expr2 mulrA mulrAC [alpha * _ * s]mulrAC exprMn -expr2.
  by rewrite -[X in _ <= X]mulr1; apply: ler_wpmul2l; rewrite // sqr_ge0.
Qed.
