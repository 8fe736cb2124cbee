(* Hypothesis A1 of Gsu.v and Series.v, from one round: rounds whose shifts the past chooses cost as much as one Gaussian
   mechanism. Assumed of one round is what Dong, Roth and Su (Gaussian Differential Privacy, 2022, Corollary 3.3) prove,
   but for tau. *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Probability.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Noisy sums of all items, round by round. *)
Definition hist (R : Type) (I : finType) := seq {ffun I -> R}.

Section Run.
Variables (R : realFieldType) (I : finType) (V : Type) (noise : nat -> V -> R).
(* The history after r rounds: the exact sums s, which the past determines, and noise. *)
Fixpoint run (s : hist R I -> I -> R) (w : I -> V) (r : nat) : hist R I :=
  if r is r'.+1 then let h := run s w r' in rcons h [ffun i => s h i + noise r' (w i)] else [::].

Lemma runS s w r : run s w r.+1 = rcons (run s w r) [ffun i => s (run s w r) i + noise r (w i)].
Proof. by []. Qed.

Lemma size_run s w r : size (run s w r) = r.
Proof. by elim: r => //= r IH; rewrite size_rcons IH. Qed.

Lemma run_ext s s' w r : (forall h i, s h i = s' h i) -> run s w r = run s' w r.
Proof. by move=> ss; elim: r => //= r ->; congr rcons; apply/ffunP => i; rewrite !ffunE ss. Qed.

Lemma take_run s w q r : (q <= r)%N -> take q (run s w r) = run s w q.
Proof.
elim: r => [|r IH]; first by rewrite leqn0 => /eqP ->.
rewrite leq_eqVlt => /orP[/eqP ->|]; first by rewrite take_oversize // size_run.
rewrite ltnS => qr; rewrite -IH //= -cats1 takel_cat // size_run //.
Qed.
End Run.

Section OneRound.
Variables (R : realFieldType) (I Z : finType).
(* Noise of round q is val q z, z with the law zeta q, independent over items and rounds. *)
Variables (zeta : nat -> Z -> R) (val : nat -> Z -> R).
Hypothesis zeta_ge0 : forall q z, 0 <= zeta q z.
Hypothesis zeta_1 : forall q, \sum_z zeta q z = 1.

(* All rounds of one item. *)
Fixpoint V (n : nat) : finType := if n is m.+1 then [finType of V m * Z] else [finType of unit].
Fixpoint nu (n : nat) : V n -> R :=
  if n is m.+1 return V n -> R then fun v => nu v.1 * zeta m v.2 else fun _ => 1.
Fixpoint noise (n : nat) (q : nat) : V n -> R :=
  if n is m.+1 return V n -> R then fun v => if q == m then val m v.2 else noise q v.1 else fun _ => 0.

Lemma noise_last n (v : V n.+1) : noise n v = val n v.2.
Proof. by rewrite /= eqxx. Qed.

Lemma noise_before n m (v : V n.+1) : (m < n)%N -> noise m v = noise m v.1.
Proof. by move=> mn /=; rewrite ltn_eqF. Qed.

Lemma nu_ge0 n v : 0 <= @nu n v.
Proof. by elim: n v => [|n IH] v /=; [rewrite ler01 | apply: mulr_ge0]. Qed.

Lemma nu_1 n : \sum_v @nu n v = 1.
Proof.
elim: n => [|n IH] /=; first by rewrite (big_pred1 tt) //; case.
rewrite -(pair_bigA _ (fun u z => nu u * zeta n z)) /= -[RHS]IH; apply: eq_bigr => u _.
by rewrite -mulr_sumr zeta_1 mulr1.
Qed.

(* A sum over the rounds of all items: over the rounds before, then over the last one. *)
Lemma sum_last (A B : finType) (F : {ffun I -> A * B} -> R) :
  \sum_w F w = \sum_(u : {ffun I -> A}) \sum_(z : {ffun I -> B}) F [ffun i => (u i, z i)].
Proof.
rewrite pair_bigA /= (reindex (fun x : {ffun I -> A} * {ffun I -> B} => [ffun i => (x.1 i, x.2 i)])) //=.
exists (fun w => ([ffun i => (w i).1], [ffun i => (w i).2])) => /= [[u z] _|w _].
  by congr (_, _); apply/ffunP => i; rewrite !ffunE.
by apply/ffunP => i; rewrite !ffunE; case: (w i).
Qed.

Lemma run_last n s (u : {ffun I -> V n}) (z : {ffun I -> Z}) :
  run (@noise n.+1) s [ffun i => (u i, z i)] n.+1 =
  let h := run (@noise n) s u n in rcons h [ffun i => s h i + val n (z i)].
Proof.
have before m : (m <= n)%N -> run (@noise n.+1) s [ffun i => (u i, z i)] m = run (@noise n) s u m.
  elim: m => [|m IH] mn; first by [].
  rewrite !runS (IH (ltnW mn)); congr rcons; apply/ffunP => i.
  by rewrite !ffunE noise_before.
rewrite runS (before n (leqnn n)); congr rcons; apply/ffunP => i; rewrite !ffunE noise_last //.
Qed.

(* The mean over the noise of the last round, given the past. *)
Definition next n (s : hist R I -> I -> R) (f : hist R I -> R) (h : hist R I) : R :=
  Ex (prod_mu (zeta n)) (fun z : {ffun I -> Z} => f (rcons h [ffun i => s h i + val n (z i)])).

Lemma Ex_last n s f :
  Ex (prod_mu (@nu n.+1)) (fun w : {ffun I -> V n.+1} => f (run (@noise n.+1) s w n.+1)) =
  Ex (prod_mu (@nu n)) (fun u : {ffun I -> V n} => next n s f (run (@noise n) s u n)).
Proof.
rewrite /Ex sum_last; apply: eq_bigr => u _; rewrite /next /Ex mulr_sumr; apply: eq_bigr => z _.
rewrite run_last mulrA; congr (_ * _); rewrite /prod_mu -big_split /=.
by apply: eq_bigr => i _; rewrite ffunE.
Qed.

(* D c e: hockey-stick divergence, at the factor e, of a Gaussian mechanism of squared sensitivity over variance c. *)
Variables (D : R -> R -> R) (tau : R) (prec : nat -> R).
Hypothesis D_base : forall c e x, 0 <= c -> 0 <= e -> 0 <= x <= 1 -> x <= e * x + D c e.
Hypothesis D_ge0 : forall c e, 0 <= c -> 0 <= e -> 0 <= D c e.
Hypothesis tau_ge0 : 0 <= tau.
Definition norm2 (x : I -> R) : R := \sum_i x i ^+ 2.
(* One round: noise of precision prec n under a shift x, then anything (A, A') that costs no more than a Gaussian
   mechanism of the cost that is left, costs no more than one of the whole cost. tau: integer draws are that close to
   Gaussian noise. *)
Hypothesis one_round : forall n (s x : I -> R) c e (A A' : {ffun I -> R} -> R),
  prec n * norm2 x <= c -> 0 <= e -> (forall y, 0 <= A y <= 1) -> (forall y, 0 <= A' y <= 1) ->
  (forall y e', 0 <= e' -> A' y <= e' * A y + D (c - prec n * norm2 x) e') ->
  Ex (prod_mu (zeta n)) (fun z : {ffun I -> Z} => A' [ffun i => s i + x i + val n (z i)]) <=
  e * Ex (prod_mu (zeta n)) (fun z : {ffun I -> Z} => A [ffun i => s i + val n (z i)]) + (D c e + tau).

Lemma next_01 n s f h : (forall h, 0 <= f h <= 1) -> 0 <= next n s f h <= 1.
Proof.
move=> f01; apply/andP; split.
  by apply: sumr_ge0 => z _; apply: mulr_ge0; [apply: prod_mu_ge0 | case/andP: (f01 (rcons h [ffun i => s h i + val n (z i)]))].
rewrite -(prod_mu_1 I (zeta_1 n)); apply: ler_sum => z _; rewrite -[X in _ <= X]mulr1.
by apply: ler_wpmul2l; [apply: prod_mu_ge0 | case/andP: (f01 (rcons h [ffun i => s h i + val n (z i)]))].
Qed.

(* What the rounds so far have cost. *)
Definition spent (x : hist R I -> I -> R) (h : hist R I) : R :=
  \sum_(q < size h) prec q * norm2 (x (take q h)).

Lemma spent_rcons x h y : spent x (rcons h y) = spent x h + prec (size h) * norm2 (x h).
Proof.
rewrite /spent size_rcons big_ord_recr /=; congr (_ + _ * _); last by rewrite -cats1 takel_cat // take_size.
by apply: eq_bigr => q _; rewrite -cats1 takel_cat // ltnW.
Qed.

(* Induction over the rounds: the last round and what follows it, with each past what is left. *)
Lemma adaptive s x c : (forall q, 0 <= prec q) -> forall n (f f' : hist R I -> R) e k,
  0 <= e -> 0 <= k -> (forall h, 0 <= f h <= 1) -> (forall h, 0 <= f' h <= 1) ->
  (forall h, size h = n -> spent x h <= c) ->
  (forall h e', size h = n -> 0 <= e' -> f' h <= e' * f h + (D (c - spent x h) e' + k)) ->
  Ex (prod_mu (@nu n)) (fun w : {ffun I -> V n} => f' (run (@noise n) (fun h i => s h i + x h i) w n)) <=
  e * Ex (prod_mu (@nu n)) (fun w : {ffun I -> V n} => f (run (@noise n) s w n)) + (D c e + (k + tau *+ n)).
Proof.
move=> prec0; elim=> [|n IH] f f' e k e0 k0 f01 f'01 within close.
  have E1 (a : R) : Ex (prod_mu (@nu 0)) (fun _ : {ffun I -> V 0} => a) = a.
    by rewrite /Ex -mulr_suml prod_mu_1 ?mul1r //; apply: (nu_1 0).
  rewrite /= !E1 mulr0n addr0; have := close [::] e erefl e0.
  by rewrite /spent big_ord0 subr0.
rewrite !Ex_last.
have -> : k + tau *+ n.+1 = (k + tau) + tau *+ n by rewrite mulrS addrA.
apply: IH; rewrite ?addr_ge0 //.
- by move=> h; apply: next_01.
- by move=> h; apply: next_01.
- move=> h hn; have := within (rcons h [ffun=> 0]); rewrite size_rcons hn => /(_ erefl).
  rewrite spent_rcons; apply: le_trans; rewrite ler_addl; apply: mulr_ge0 => //.
  by apply: sumr_ge0 => i _; apply: sqr_ge0.
- move=> h e' hn e'0.
  pose A y := f (rcons h y); pose A' y := Num.max 0 (f' (rcons h y) - k).
  have costy : prec n * norm2 (x h) <= c - spent x h.
    have := within (rcons h [ffun=> 0]); rewrite size_rcons hn => /(_ erefl).
    by rewrite spent_rcons hn addrC ler_subr_addr.
  have := @one_round n (s h) (x h) (c - spent x h) e' A A' costy e'0 (fun y => f01 _).
  have A'01 y : 0 <= A' y <= 1.
    rewrite /A' le_maxr lexx /= le_maxl ler01 /= ler_subl_addr.
    by case/andP: (f'01 (rcons h y)) => _ fy; apply: le_trans fy _; rewrite ler_addl.
  move=> /(_ A'01) one; apply: le_trans (_ : _ <= Ex (prod_mu (zeta n)) (fun z : {ffun I -> Z} =>
      A' [ffun i => s h i + x h i + val n (z i)]) + k) _.
    rewrite /next /Ex -[k in X in _ <= X]mul1r -(prod_mu_1 I (zeta_1 n)) mulr_suml -big_split /=.
    apply: ler_sum => z _; rewrite -mulrDr; apply: ler_wpmul2l; first exact: prod_mu_ge0.
    by rewrite -ler_subl_addr /A' le_maxr lexx orbT.
  rewrite [k + tau]addrC !addrA ler_add2r -addrA; apply: one => y e2 e20.
  rewrite /A' le_maxl; apply/andP; split.
    apply: addr_ge0; first by apply: mulr_ge0 => //; case/andP: (f01 (rcons h y)).
    by apply: D_ge0 => //; rewrite subr_ge0.
  rewrite ler_subl_addr -addrA; have := close (rcons h y) e2; rewrite size_rcons hn => /(_ erefl e20).
  by rewrite spent_rcons hn opprD !addrA.
Qed.

(* For every choice of sums s and shifts x by the past that keeps to the cost c. *)
Lemma gaussian_rounds n s x c e : (forall q, 0 <= prec q) -> 0 <= e -> 0 <= c ->
  (forall h, size h = n -> spent x h <= c) ->
  let h w := run (@noise n) s w n in let h' w := run (@noise n) (fun h i => s h i + x h i) w n in
  forall E : pred (hist R I), Pr (prod_mu (@nu n)) (fun w : {ffun I -> V n} => E (h' w)) <=
    e * Pr (prod_mu (@nu n)) (fun w : {ffun I -> V n} => E (h w)) + (D c e + tau *+ n).
Proof.
move=> prec0 e0 c0 within h h' E; rewrite !PrE -[tau *+ n]add0r.
have b01 (b : bool) : 0 <= (b%:R : R) <= 1 by case: b; rewrite ?ler01 ?lexx ?ler01.
apply: (@adaptive s x c prec0 n (fun h => (E h)%:R) (fun h => (E h)%:R)) => // g e' gn e'0.
by rewrite addr0; apply: D_base => //; rewrite subr_ge0; apply: within.
Qed.

(* A1, in both directions: v's weights are added, or taken away. *)
Theorem A1 n e c : (forall q, 0 <= prec q) -> 0 <= e -> 0 <= c -> forall s x : hist R I -> I -> R,
  (forall h, size h = n -> spent x h <= c) ->
  let h w := run (@noise n) s w n in let h' w := run (@noise n) (fun h i => s h i + x h i) w n in
  forall E : pred (hist R I),
    Pr (prod_mu (@nu n)) (fun w : {ffun I -> V n} => E (h' w)) <=
      e * Pr (prod_mu (@nu n)) (fun w : {ffun I -> V n} => E (h w)) + (D c e + tau *+ n) /\
    Pr (prod_mu (@nu n)) (fun w : {ffun I -> V n} => E (h w)) <=
      e * Pr (prod_mu (@nu n)) (fun w : {ffun I -> V n} => E (h' w)) + (D c e + tau *+ n).
Proof.
move=> prec0 e0 c0 s x within h h' E; split; first exact: (@gaussian_rounds n s x c e prec0 e0 c0 within E).
have back g : size g = n -> spent (fun h i => - x h i) g <= c.
  move=> gn; apply: le_trans (within g gn); rewrite /spent le_eqVlt; apply/orP; left; apply/eqP.
  by apply: eq_bigr => q _; congr (_ * _); apply: eq_bigr => i _; rewrite sqrrN.
have := @gaussian_rounds n (fun h i => s h i + x h i) (fun h i => - x h i) c e prec0 e0 c0 back E.
have -> // : Pr (prod_mu (@nu n)) (fun w : {ffun I -> V n} => E (run (@noise n) (fun h i => s h i + x h i + - x h i) w n))
  = Pr (prod_mu (@nu n)) (fun w : {ffun I -> V n} => E (h w)).
by apply: eq_bigl => w; rewrite /h (@run_ext _ _ _ _ _ s) // => g i; rewrite addrK.
Qed.
End OneRound.
