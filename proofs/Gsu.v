(* gsu: docs/explanation/gsu.md, with a floor on users (privacy.md) and noisy counts (counts.md). *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Probability Gaussian Identical.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Gsu.
Variables (R : realFieldType) (I V : finType) (rounds : nat) (nu : V -> R) (noise : nat -> V -> R).
Hypothesis nu_ge0 : forall v, 0 <= nu v.
Hypothesis nu_1 : \sum_v nu v = 1.
Local Notation W := {ffun I -> V}.
Local Notation PrW := (Pr (prod_mu nu : W -> R)).
Local Notation hist := (hist R I).
Local Notation releases := (releases I).

(* Coefficients: a round with a = 0 is tested by nothing, as those of noisy counts are. *)
Variables (a rho slack : nat -> R) (cross : nat -> seq R -> bool).
Hypothesis a_ge0 : forall q, 0 <= a q.
Hypothesis cross_slack : forall k g, size g = k.+1 -> cross k g -> rho k <= \sum_(q < k.+1) a q * nth 0 g q + slack k.

(* A user, its one sample for all rounds; a score, of the item's own noisy sums and whether it is out; weights, of the
   user, the scores and what is out. *)
Variables (U : Type) (sample : U -> {set I}) (S : Type) (score : seq R -> bool -> S).
Variables (wt : nat -> U -> (I -> S) -> releases -> I -> R) (cap : nat -> R).
Hypothesis wt_ge0 : forall r u sc rel i, 0 <= wt r u sc rel i.
Hypothesis wt_norm : forall r u sc rel, norm2 (wt r u sc rel) <= 1.
Hypothesis wt_out : forall r u sc rel i, 0 < a r -> i \notin sample u -> wt r u sc rel i = 0.
Hypothesis wt_cap : forall r u sc rel i, 0 < a r -> wt r u sc rel i <= cap #|sample u|.
Definition sends u (h : hist) (rel : releases) : I -> R :=
  wt (size h) u (fun j => score (own h j) (j \in out rel)) rel.
Definition sums (us : seq U) h rel i : R := \sum_(u <- us) sends u h rel i.

(* A floor takes T off every sum, and makes only items a candidate of which something was left. *)
Variables (floored : bool) (T : nat -> R).
Hypothesis T_ge0 : forall r, 0 <= T r.
Definition kept us (h : hist) rel i : R := Num.max 0 (sums us h rel i - T (size h)).
Definition universe (us : seq U) : {set I} := \bigcup_(u <- us) sample u.
Definition candidates us (h : hist) (rel : releases) : {set I} :=
  [set i in universe us | ~~ floored ||
    [exists q : 'I_(size h).+1, (0 < a q) && (0 < kept us (take q h) (take q rel) i)]].

(* What a run shows is any function of noisy sums and releases; so public items are shown, too. *)
Variables (O : Type) (show : hist * releases -> O).
Definition gsu us (w : W) : O := show (world noise cross (kept us) (candidates us) w rounds).

Lemma sums_cons u us h rel i : sums (u :: us) h rel i = sums us h rel i + sends u h rel i.
Proof. by rewrite /sums big_cons addrC. Qed.

(* x -> max(0, s + x - T) moves by at most x (privacy.md, "A floor on users"). *)
Lemma kept_moves u us h rel i :
  0 <= kept (u :: us) h rel i - kept us h rel i <= sends u h rel i.
Proof.
have x0 : 0 <= sends u h rel i by apply: wt_ge0.
rewrite /kept sums_cons; set s := sums us h rel i; set x := sends u h rel i in x0 *; set t := T _.
rewrite subr_ge0 ler_subl_addr; apply/andP; split.
  by rewrite le_maxl le_maxr lexx /= le_maxr ler_add2r ler_addl x0 orbT.
rewrite le_maxl; apply/andP; split; first by apply: addr_ge0; rewrite // le_maxr lexx.
by rewrite [s + x]addrC -addrA ler_add2l le_maxr lexx orbT.
Qed.

Lemma universe_cons u us : universe (u :: us) = sample u :|: universe us.
Proof. by rewrite /universe big_cons. Qed.

(* Nobody of us has an item outside of their universe. *)
Lemma kept_novel us h rel i : 0 < a (size h) -> i \notin universe us -> kept us h rel i = 0.
Proof.
move=> ah iu; rewrite /kept; suff -> : sums us h rel i = 0.
  by rewrite sub0r; apply/eqP; rewrite eq_le le_maxl !le_maxr lexx /= oppr_le0 T_ge0.
rewrite /sums; elim: us iu => [|u us IH]; first by rewrite big_nil.
rewrite universe_cons inE negb_or => /andP[iu is_]; rewrite big_cons IH // addr0.
by apply: wt_out.
Qed.

(* An item that is a candidate through v alone is in v's sample, and the others have left nothing on it so far. *)
Lemma novel u us h (rel : releases) i : size rel = size h ->
  i \in candidates (u :: us) h rel -> i \notin candidates us h rel ->
  i \in sample u /\ forall q, (q <= size h)%N -> 0 < a q -> kept us (take q h) (take q rel) i = 0.
Proof.
move=> sr; rewrite !inE universe_cons inE => /andP[iU cU] nc.
have zero q : (q <= size h)%N -> 0 < a q -> kept us (take q h) (take q rel) i = 0.
  move=> qh aq; case: (boolP (i \in universe us)) nc => [iu|iu _]; last by apply: kept_novel; rewrite // size_takel.
  rewrite negb_or negbK => /andP[_ /existsPn/(_ (Ordinal (_ : (q < (size h).+1)%N)))] /= none.
  have := none qh; rewrite aq /= -leNgt => k0; apply/eqP; by rewrite eq_le k0 /kept le_maxr lexx.
split=> //; case/orP: iU => // iu; move: nc; rewrite iu /= negb_or => /andP[fl none].
move: cU; rewrite (negbTE fl) /= => /existsP[q /andP[aq kq]].
case: (boolP (i \in sample u)) => // ni.
have qh : (q <= size h)%N by rewrite -ltnS.
have := zero q qh aq; rewrite /kept in kq *; move: kq; rewrite sums_cons {1}/sends wt_out ?size_takel // addr0.
by move=> kq k0; rewrite k0 ltxx in kq.
Qed.

(* Kept sums of the others only grow with v. *)
Lemma candidates_mono u us h (rel : releases) : candidates us h rel \subset candidates (u :: us) h rel.
Proof.
apply/subsetP => i; rewrite !inE universe_cons inE => /andP[-> cU]; rewrite orbT /=.
case/orP: cU => [-> //|/existsP[q /andP[aq kq]]]; apply/orP; right; apply/existsP; exists q; rewrite aq /=.
apply: lt_le_trans kq _; have := kept_moves u us (take q h) (take q rel) i.
by rewrite subr_ge0 => /andP[].
Qed.

(* A1: rounds that keep to their cost (Gaussian.v). *)
Variables (e dG dT : R) (prec : nat -> R) (total : R).
Hypothesis e_ge0 : 0 <= e.
Hypothesis prec_ge0 : forall q, 0 <= prec q.
Hypothesis A1 : forall s x : hist -> I -> R, (forall h, size h = rounds -> spent prec x h <= total) ->
  let h w := run noise s w rounds in let h' w := run noise (fun h i => s h i + x h i) w rounds in
  forall E : pred hist, PrW (fun w => E (h' w)) <= e * PrW (fun w => E (h w)) + dG /\
    PrW (fun w => E (h w)) <= e * PrW (fun w => E (h' w)) + dG.
Hypothesis total_prec : \sum_(q < rounds) prec q <= total.
(* A2: equation (1) of gsu.md, for every degree, with what the float state and integer draws add. *)
Variables (D0 : nat) (p : nat -> R).
Hypothesis cap_ge0 : forall d, 0 <= cap d.
Hypothesis A2 : forall d, (d <= D0)%N ->
  [/\ Pr nu (crosses_alone rounds noise a rho slack (cap d)) <= p d, p d <= 1 & 1 - dT <= (1 - p d) ^+ d].

(* For one outcome of the samples. *)
Theorem gsu_private (us : seq U) (v : U) : (#|sample v| <= D0)%N ->
  forall o : pred O,
    PrW (fun w => o (gsu (v :: us) w)) <= e * PrW (fun w => o (gsu us w)) + (dG + dT) /\
    PrW (fun w => o (gsu us w)) <= e * PrW (fun w => o (gsu (v :: us) w)) + (dG + dT).
Proof.
move=> vD o; have [Ap p1 pd] := A2 vD.
pose s := kept us; pose x h rel i := kept (v :: us) h rel i - kept us h rel i.
pose c := candidates us; pose cv := candidates (v :: us).
have worldE w : world noise cross (kept (v :: us)) (candidates (v :: us)) w rounds =
    world noise cross (fun h rel i => s h rel i + x h rel i) (fun h rel => c h rel :|: cv h rel) w rounds.
  apply: world_ext => [h rel i|h rel]; first by rewrite addrC subrK.
  by apply/esym/setUidPr/candidates_mono.
have x_le h rel i : 0 <= x h rel i <= sends v h rel i by apply: kept_moves.
have cost h : size h = rounds -> spent prec (x1 cross x c) h <= total.
  move=> hr; apply: le_trans total_prec; rewrite /spent hr; apply: ler_sum => q _.
  rewrite -[X in _ <= X]mulr1; apply: ler_wpmul2l; rewrite // -?hr //.
  apply: le_trans (wt_norm (size (take q h)) v (fun j => score (own (take q h) j) (j \in out (reading cross c (take q h))))
    (reading cross c (take q h))).
  apply: ler_sum => i _; have /andP[x0 xs] := x_le (take q h) (reading cross c (take q h)) i.
  by rewrite ler_sqr // nnegrE; apply: le_trans xs.
(* Both worlds at once: what arrives at a novel item is nothing, or v's own. *)
have rare sums' : (forall h i, (sums' h i = s1 cross s c h i) \/ (sums' h i = s1 cross s c h i + x1 cross x c h i)) ->
    PrW (fun w => bad rounds cross c cv (run noise sums' w rounds)) <= dT.
  move=> two; apply: le_trans (some_item nu_ge0 nu_1 Ap p1 (leqnn _) pd).
  apply: (Pr_mono (prod_mu_ge0 nu_ge0)) => w /existsP[k /existsP[i /and3P[iv ic cr]]].
  set h := run noise sums' w rounds in iv ic cr.
  have kh : size (take k h) = k by rewrite size_takel // size_run ltnW.
  have [|isv zero] := novel _ iv ic; first by rewrite size_read kh.
  apply/existsP; exists i; rewrite isv /=; apply: (crossed_alone a_ge0 cross_slack (ltn_ord k) _ cr) => q qk aq.
  set g := run noise sums' w q.
  have hq : take q (take k h) = g.
    by rewrite take_take // /h take_run //; apply: leq_trans qk _; apply: ltnW.
  have relq : take q (read cross c k h) = reading cross c g.
    by rewrite -hq reading_take ?kh // read_take // take_read.
  have := zero q; rewrite kh hq relq => /(_ qk aq) z.
  have [->|->] := two g i; rewrite /s1 /x1 -/(s g) /s z ?cap_ge0 // add0r.
  have /andP[_ xs] := x_le g (reading cross c g) i; apply: le_trans xs _.
  by apply: wt_cap; rewrite size_run.
have withE : PrW (fun w => o (gsu (v :: us) w)) = PrW (fun w => o (show (world noise cross
    (fun h rel i => s h rel i + x h rel i) (fun h rel => c h rel :|: cv h rel) w rounds))).
  by apply: eq_bigl => w; rewrite /gsu worldE.
rewrite withE; apply: (identical nu_ge0 e_ge0 A1 cost _ _ show o).
  by apply: rare => h i; left.
by apply: rare => h i; right.
Qed.

(* Samples: each user's is drawn by its own coins, of what the earlier releases (known) have left to it. *)
Variables (C : finType) (lam : C -> R) (N Raw : Type) (draw : C -> N -> Raw -> U).
Hypothesis lam_ge0 : forall k, 0 <= lam k.
Hypothesis lam_1 : \sum_k lam k = 1.
Hypothesis one_sample : forall k n u, (#|sample (draw k n u)| <= D0)%N.
Definition released (us : seq (N * Raw)) (o : pred O) : R :=
  Ex lam (fun k => PrW (fun w => o (gsu [seq draw k u.1 u.2 | u <- us] w))).

(* gsu.md, "Guarantee": the program, samples included. *)
Theorem gsu_release (us : seq (N * Raw)) (v : N * Raw) (o : pred O) :
  released (v :: us) o <= e * released us o + (dG + dT) /\
  released us o <= e * released (v :: us) o + (dG + dT).
Proof.
split; apply: (mixture lam_ge0 lam_1) => k.
  by case: (@gsu_private [seq draw k u.1 u.2 | u <- us] (draw k v.1 v.2) (one_sample k v.1 v.2) o).
by case: (@gsu_private [seq draw k u.1 u.2 | u <- us] (draw k v.1 v.2) (one_sample k v.1 v.2) o).
Qed.
End Gsu.

Section GsuGaussian.
(* gsu on the noise of Gaussian.v: A1 is what one_round gives. *)
Variables (R : realFieldType) (I Z : finType) (rounds : nat) (zeta val : nat -> Z -> R).
Hypothesis zeta_ge0 : forall q z, 0 <= zeta q z.
Hypothesis zeta_1 : forall q, \sum_z zeta q z = 1.
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
Local Notation V := (V Z rounds).
Local Notation nu := (@nu R Z zeta rounds).
Local Notation noise := (@noise R Z val rounds).


(* Users, tests and weights as above. *)
Variables (a rho slack : nat -> R) (cross : nat -> seq R -> bool).
Hypothesis a_ge0 : forall q, 0 <= a q.
Hypothesis cross_slack : forall k g, size g = k.+1 -> cross k g -> rho k <= \sum_(q < k.+1) a q * nth 0 g q + slack k.
Variables (U : Type) (sample : U -> {set I}) (S : Type) (score : seq R -> bool -> S).
Variables (wt : nat -> U -> (I -> S) -> releases I -> I -> R) (cap : nat -> R).
Hypothesis wt_ge0 : forall r u sc rel i, 0 <= wt r u sc rel i.
Hypothesis wt_norm : forall r u sc rel, norm2 (wt r u sc rel) <= 1.
Hypothesis wt_out : forall r u sc rel i, 0 < a r -> i \notin sample u -> wt r u sc rel i = 0.
Hypothesis wt_cap : forall r u sc rel i, 0 < a r -> wt r u sc rel i <= cap #|sample u|.
Variables (floored : bool) (T : nat -> R) (O : Type) (show : hist R I * releases I -> O).
Hypothesis T_ge0 : forall r, 0 <= T r.
Hypothesis total_ge0 : 0 <= total.
Hypothesis total_prec : \sum_(q < rounds) prec q <= total.
Variables (D0 : nat) (p : nat -> R) (dT : R).
Hypothesis cap_ge0 : forall d, 0 <= cap d.
Hypothesis A2 : forall d, (d <= D0)%N ->
  [/\ Pr nu (crosses_alone rounds noise a rho slack (cap d)) <= p d, p d <= 1 & 1 - dT <= (1 - p d) ^+ d].
Variables (C : finType) (lam : C -> R) (N Raw : Type) (draw : C -> N -> Raw -> U).
Hypothesis lam_ge0 : forall k, 0 <= lam k.
Hypothesis lam_1 : \sum_k lam k = 1.
Hypothesis one_sample : forall k n u, (#|sample (draw k n u)| <= D0)%N.

(* The theorem of gsu.md: what one Gaussian mechanism costs, novel items, and the distance of integer draws. *)
Theorem gsu_gaussian (us : seq (N * Raw)) (v : N * Raw) (o : pred O) :
  let P := released rounds nu noise a cross sample score wt floored T show lam draw in
  let delta := D total e + tau *+ rounds + dT in
  P (v :: us) o <= e * P us o + delta /\ P us o <= e * P (v :: us) o + delta.
Proof.
have g0 := @nu_ge0 R Z zeta zeta_ge0 rounds; have g1 := nu_1 zeta_1 rounds.
have a1 := @A1 R I Z zeta val zeta_ge0 zeta_1 D tau prec D_base D_ge0 tau_ge0 one_round rounds e total prec_ge0 e_ge0
  total_ge0.
exact: (@gsu_release R I V rounds nu noise g0 g1 a rho slack cross a_ge0 cross_slack U sample S score wt cap wt_ge0
  wt_norm wt_out wt_cap floored T T_ge0 O show e (D total e + tau *+ rounds) dT prec total e_ge0 prec_ge0 a1 total_prec D0
  p cap_ge0 A2 C lam N Raw draw lam_ge0 lam_1 one_sample us v o).
Qed.
End GsuGaussian.
