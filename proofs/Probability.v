(* Finite probability: laws as finite sums, independence over items, and "a private history and a rare bad event".
   Noise is finite, as in the program: integers, drawn from tables. *)
From mathcomp Require Import all_ssreflect all_algebra.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Probability.
Variables (R : realFieldType) (W : finType) (mu : W -> R).
Hypothesis mu_ge0 : forall w, 0 <= mu w.
Definition Pr (A : pred W) : R := \sum_(w | A w) mu w.
Definition Ex (f : W -> R) : R := \sum_w mu w * f w.

(* A larger event is no less probable. *)
Lemma Pr_mono (A B : pred W) : (forall w, A w -> B w) -> Pr A <= Pr B.
Proof.
move=> AB; rewrite /Pr (big_mkcond A) (big_mkcond B) /=; apply: ler_sum => w _.
by case: ifP => [/AB -> //|_]; case: ifP.
Qed.

(* Union bound, of two. *)
Lemma Pr_union (A B C : pred W) : (forall w, C w -> A w || B w) -> Pr C <= Pr A + Pr B.
Proof.
move=> CAB; rewrite /Pr !(big_mkcond A) !(big_mkcond B) (big_mkcond C) -big_split /=.
apply: ler_sum => w _; case: ifP => [/CAB|_]; last by apply: addr_ge0; case: ifP.
by case: (A w); case: (B w) => //= _; rewrite ?addr0 ?add0r // ler_addl.
Qed.

(* Union bound, of many. *)
Lemma Pr_some (J : finType) (A : J -> pred W) : Pr (fun w => [exists j, A j w]) <= \sum_j Pr (A j).
Proof.
rewrite /Pr [X in _ <= X](eq_bigr (fun j => \sum_w if A j w then mu w else 0)); last first.
  by move=> j _; rewrite big_mkcond.
rewrite exchange_big /= big_mkcond; apply: ler_sum => w _.
case: ifP => [/existsP[j Aj]|_]; last by apply: sumr_ge0 => j _; case: ifP.
by rewrite (bigD1 j) //= Aj ler_addl; apply: sumr_ge0 => k _; case: ifP.
Qed.

(* The probability of an event is the mean of its indicator. *)
Lemma PrE (A : pred W) : Pr A = Ex (fun w => (A w)%:R).
Proof. by rewrite /Pr /Ex big_mkcond; apply: eq_bigr => w _; case: (A w); rewrite ?mulr1 ?mulr0. Qed.

(* Step 3 of gsu.md, step 4 of series.md: h is the history without v, h' with v, and off a rare event both worlds
   release the same function f of it. *)
Lemma combine (H O : Type) (h h' : W -> H) (bad : pred H) (f : H -> O) (out out' : W -> O) e dG dT :
  0 <= e ->
  (forall w, ~~ bad (h w) -> out w = f (h w)) ->
  (forall w, ~~ bad (h' w) -> out' w = f (h' w)) ->
  (forall E : pred H, Pr (E \o h') <= e * Pr (E \o h) + dG) ->
  Pr (bad \o h') <= dT ->
  forall o : pred O, Pr (o \o out') <= e * Pr (o \o out) + (dG + dT).
Proof.
move=> e0 eq1 eq2 dp pb o; pose E := [pred x | ~~ bad x & o (f x)].
apply: (@le_trans _ _ (Pr (E \o h') + Pr (bad \o h'))).
  apply: Pr_union => w /=; case: (boolP (bad (h' w))) => [|nb]; first by rewrite orbT.
  by rewrite eq2 // => ->.
rewrite addrA; apply: ler_add => //; apply: le_trans (dp E) _.
rewrite ler_add2r ler_wpmul2l //; apply: Pr_mono => w /= /andP[nb].
by rewrite eq1.
Qed.
End Probability.

Section Mixture.
Variables (R : realFieldType) (C : finType) (lam : C -> R).
Hypothesis lam_ge0 : forall c, 0 <= lam c.
Hypothesis lam_1 : \sum_c lam c = 1.

(* Step 0: what holds for every outcome of the samples holds for their mixture. *)
Lemma mixture (P P' : C -> R) e d :
  (forall c, P' c <= e * P c + d) -> Ex lam P' <= e * Ex lam P + d.
Proof.
move=> each; rewrite /Ex mulr_sumr -[d]mul1r -lam_1 mulr_suml -big_split /=; apply: ler_sum => c _.
by apply: le_trans (ler_wpmul2l (lam_ge0 c) (each c)) _; rewrite mulrDr mulrCA.
Qed.
End Mixture.

Section Product.
Variables (R : realFieldType) (I V : finType) (nu : V -> R).
Hypothesis nu_ge0 : forall v, 0 <= nu v.
Hypothesis nu_1 : \sum_v nu v = 1.
Definition prod_mu (w : {ffun I -> V}) : R := \prod_i nu (w i).
Lemma prod_mu_ge0 w : 0 <= prod_mu w. Proof. by apply: prodr_ge0. Qed.
Lemma prod_mu_1 : \sum_w prod_mu w = 1.
Proof.
rewrite /prod_mu -(bigA_distr_bigA (fun _ => nu)) /=.
by rewrite big1 // => i _; rewrite nu_1.
Qed.

(* Step 2 of gsu.md: one of at most d items crosses by its own noise, items being independent. *)
Lemma some_item (T : {set I}) (A : pred V) p d dT :
  Pr nu A <= p -> p <= 1 -> (#|T| <= d)%N -> 1 - dT <= (1 - p) ^+ d ->
  Pr prod_mu (fun w : {ffun I -> V} => [exists i in T, A (w i)]) <= dT.
Proof.
move=> Ap p1 Td bound.
pose B (w : {ffun I -> V}) := [exists i in T, A (w i)].
have split1 : Pr prod_mu B + Pr prod_mu (fun w => ~~ B w) = 1.
  by rewrite /Pr -prod_mu_1 [RHS](bigID B).
have noneE : Pr prod_mu (fun w => ~~ B w) = \prod_i \sum_(v | (i \in T) ==> ~~ A v) nu v.
  rewrite [RHS](bigA_distr_big_dep (fun i v => (i \in T) ==> ~~ A v) (fun _ => nu)) /Pr /prod_mu.
  apply: eq_bigl => w; rewrite /B negb_exists.
  apply/forallP/familyP => h i; move: (h i); rewrite ?inE /in_mem /= negb_and -implybE //.
have P1 : Pr nu A + \sum_(v | ~~ A v) nu v = 1 by rewrite /Pr -nu_1 [RHS](bigID A).
suff h : (1 - p) ^+ d <= Pr prod_mu (fun w => ~~ B w).
  rewrite -[Pr _ _](addrK (Pr prod_mu (fun w => ~~ B w))) split1.
  by rewrite ler_subl_addl -ler_subl_addr; apply: le_trans h.
have q0 : 0 <= 1 - p by rewrite subr_ge0.
have q1 : 1 - p <= 1.
  by rewrite ler_subl_addr ler_addl; apply: le_trans Ap; apply: sumr_ge0.
apply: (@le_trans _ _ ((1 - p) ^+ #|T|)); first by apply: ler_wiexpn2l.
rewrite noneE -prodr_const [X in _ <= X](bigID (mem T)) /= [X in _ <= _ * X]big1 ?mulr1.
  apply: ler_prod => i iT; rewrite q0 /=.
  under eq_bigl => v do rewrite iT /=.
  by rewrite ler_subl_addr -[X in X <= _]P1 addrC ler_add2l.
move=> i /negbTE niT; rewrite -nu_1; apply: eq_bigl => v; by rewrite niT.
Qed.

(* The noise with that of one item replaced. *)
Definition upd (w : {ffun I -> V}) i v : {ffun I -> V} := [ffun j => if j == i then v else w j].

(* To draw the noise of one item again changes no mean. *)
Lemma redraw i (f : {ffun I -> V} -> R) :
  Ex prod_mu f = Ex prod_mu (fun w => \sum_v nu v * f (upd w i v)).
Proof.
rewrite /Ex; transitivity (\sum_(x : {ffun I -> V} * V) prod_mu x.1 * nu x.2 * f x.1).
  rewrite -(pair_bigA _ (fun w v => prod_mu w * nu v * f w)) /=; apply: eq_bigr => w _.
  by rewrite -mulr_suml -mulr_sumr nu_1 mulr1.
under [RHS]eq_bigr => w _ do rewrite mulr_sumr.
rewrite [RHS]pair_bigA /=.
pose swap (x : {ffun I -> V} * V) := (upd x.1 i x.2, x.1 i).
have swapK : involutive swap.
  move=> [w v]; rewrite /swap /upd /=; congr (_, _); last by rewrite ffunE eqxx.
  by apply/ffunP => j; rewrite !ffunE; case: eqP => [->|].
rewrite (reindex_inj (inv_inj swapK)) /=; apply: eq_bigr => -[w v] _ /=.
rewrite mulrA; congr (_ * _); rewrite /prod_mu (bigD1 i) //= [in RHS](bigD1 i) //= ffunE eqxx.
rewrite [in LHS](eq_bigr (fun j => nu (w j))); last by move=> j /negbTE ji; rewrite ffunE ji.
by rewrite mulrC mulrAC [in RHS](mulrC (nu (w i))).
Qed.

(* Step 3 of series.md: an item is chosen without a look at its noise, so its noise is fresh. *)
Lemma fresh_choice (pick : {ffun I -> V} -> option I) (A : pred V) p :
  Pr nu A <= p -> (forall w i v, pick w = Some i -> pick (upd w i v) = Some i) ->
  Pr prod_mu (fun w => if pick w is Some i then A (w i) else false) <= p.
Proof.
move=> Ap fresh.
have p0 : 0 <= p by apply: le_trans Ap; apply: sumr_ge0.
apply: (@le_trans _ _ (Pr prod_mu (fun w => [exists i, (pick w == Some i) && A (w i)]))).
  apply: (Pr_mono prod_mu_ge0) => w; case E: (pick w) => [i|] // Ai.
  by apply/existsP; exists i; rewrite eqxx.
apply: le_trans (Pr_some prod_mu_ge0 _) _.
have each i : Pr prod_mu (fun w => (pick w == Some i) && A (w i)) <= Pr prod_mu (fun w => pick w == Some i) * p.
  rewrite PrE (redraw i) /Pr mulr_suml [X in _ <= X]big_mkcond /Ex /=; apply: ler_sum => w _.
  have [Ei|Ei] := eqVneq (pick w) (Some i).
    apply: ler_wpmul2l; first exact: prod_mu_ge0.
    apply: le_trans Ap; rewrite /Pr [X in _ <= X]big_mkcond /=; apply: ler_sum => v _.
    by rewrite fresh // eqxx /upd ffunE eqxx; case: (A v); rewrite ?mulr1 ?mulr0.
  rewrite big1 ?mulr0 // => v _; case: eqP => [Eu|_]; last by rewrite mulr0.
  case/eqP: Ei; rewrite -(fresh _ _ (w i) Eu); congr pick.
  by apply/ffunP => j; rewrite !ffunE; case: eqP => [->|].
apply: (@le_trans _ _ (\sum_i Pr prod_mu (fun w => pick w == Some i) * p)); first exact: ler_sum.
rewrite -mulr_suml -[X in _ <= X]mul1r; apply: ler_wpmul2r => //.
rewrite -prod_mu_1 /Pr.
under eq_bigr => i _ do rewrite big_mkcond.
rewrite exchange_big /=; apply: ler_sum => w _.
rewrite -big_mkcond /=; case: (pick w) => [i|]; last by rewrite big_pred0 // prod_mu_ge0.
by rewrite (eq_bigl (pred1 i)) ?big_pred1_eq // => j; rewrite (inj_eq Some_inj) eq_sym.
Qed.
End Product.
