(* vote: one more user moves one count by one (docs/explanation/vote.md, theorem 2), and the release (theorem 1). *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Lia.
Require Import Probability.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Votes.
Variables (I U : finType) (lst : U -> seq I) (enter : U -> nat) (order : U -> nat) (q last : nat) (i0 : I).
Hypothesis lst_nonempty : forall u, 0 < size (lst u).
Hypothesis enter_in_time : forall u, enter u <= last.
Hypothesis order_inj : injective order.

(* Of a set of users those that are not among the first m in the order. *)
Definition ahead (A : {set U}) u := #|[set w in A | order w < order u]|.
Definition refuse (A : {set U}) m : {set U} := [set u in A | m <= ahead A u].

(* The asked item refuses all but the first m. *)
Lemma card_refuse A m : #|refuse A m| = #|A| - m.
Proof.
have lt u : u \in A -> ahead A u < #|A|.
  move=> uA; apply: proper_card; apply/properP; split; first by apply/subsetP => w; rewrite inE => /andP[].
  by exists u; rewrite // inE uA ltnn.
have mono u w : u \in A -> order u < order w -> ahead A u < ahead A w.
  move=> uA uw; apply: proper_card; apply/properP; split.
    by apply/subsetP => x; rewrite !inE => /andP[-> xu]; apply: ltn_trans uw.
  by exists u; rewrite !inE uA // ltnn.
have inj : {in A &, injective (ahead A)}.
  move=> u w uA wA E; apply: order_inj; case: (ltngtP (order u) (order w)) => // c.
    by have := mono _ _ uA c; rewrite E ltnn.
  by have := mono _ _ wA c; rewrite E ltnn.
have perm : perm_eq [seq ahead A u | u <- enum A] (iota 0 #|A|).
  apply: uniq_perm; rewrite ?iota_uniq ?map_inj_in_uniq ?enum_uniq //.
    by move=> u w; rewrite !mem_enum; apply: inj.
  have sub : {subset [seq ahead A u | u <- enum A] <= iota 0 #|A|}.
    by move=> k /mapP[u]; rewrite mem_enum mem_iota /= add0n => uA ->; apply: lt.
  have [] // := uniq_min_size _ sub; rewrite ?size_iota ?size_map -?cardE //.
  by rewrite map_inj_in_uniq ?enum_uniq // => u w; rewrite !mem_enum; apply: inj.
have -> : #|refuse A m| = count (fun k => m <= k) [seq ahead A u | u <- enum A].
  rewrite count_map -size_filter cardE; congr size; rewrite /enum_mem -filter_predI.
  by apply: eq_filter => u; rewrite /= !inE andbC.
rewrite (permP perm); case: (leqP m #|A|) => mA.
  rewrite -[in iota _ _](subnKC mA) iotaD count_cat (@eq_in_count _ _ pred0) ?count_pred0 ?add0n.
    by rewrite (@eq_in_count _ _ predT) ?count_predT ?size_iota // => k; rewrite mem_iota => /andP[].
  by move=> k; rewrite mem_iota add0n /= => km; rewrite leqNgt km.
rewrite (@eq_in_count _ _ pred0) ?count_pred0; first by apply/esym/eqP; rewrite subn_eq0 ltnW.
by move=> k; rewrite mem_iota add0n /= => km; rewrite leqNgt (ltn_trans km mA).
Qed.

(* More users ask and fewer seats are left: whoever was refused still is. *)
Lemma refuse_mono (A A' : {set U}) m m' : A \subset A' -> m' <= m -> refuse A m \subset refuse A' m'.
Proof.
move=> AA mm; apply/subsetP => u; rewrite !inE => /andP[uA mu]; rewrite (subsetP AA) //=.
apply: leq_trans mm (leq_trans mu _); apply: subset_leq_card; apply/subsetP => w.
by rewrite !inE => /andP[wA ->]; rewrite (subsetP AA).
Qed.

Section World.
Variable P : {set U}.
(* Trip by trip: the place of its list that a user asks, if it asks, and the seats that are taken. *)
Definition item u k := nth i0 (lst u) k.
Definition asked (st : U -> option nat) i : {set U} := [set u in P | if st u is Some k then item u k == i else false].
Definition refused (st : U -> option nat) (s : I -> nat) i := refuse (asked st i) (q - s i).
Definition moves (st : U -> option nat) (s : I -> nat) u : option nat :=
  if st u is Some k then
    if (u \in refused st s (item u k)) && (k.+1 < size (lst u)) then Some k.+1 else None
  else None.
Fixpoint trip t : (U -> option nat) * (I -> nat) :=
  if t is t'.+1 then let: (st, s) := trip t' in
    (fun u => if enter u == t then Some 0 else moves st s u, fun i => minn q (s i + #|asked st i|))
  else (fun u => if enter u == 0 then Some 0 else None, fun=> 0).
Definition stays t i : {set U} :=
  [set u in refused (trip t).1 (trip t).2 i | if (trip t).1 u is Some k then k.+1 == size (lst u) else false].
(* On the last trip an item takes all users that ask it. *)
Definition votes i : nat := (trip last).2 i + #|asked (trip last).1 i| + \sum_(t < last) #|stays t i|.

Lemma status_bound t u k : (trip t).1 u = Some k -> enter u <= t /\ k < size (lst u).
Proof.
elim: t k => [|t IH] k /=; first by case: eqP => // -> [<-].
case E: (trip t) => [st s] /=; case: eqP => [-> [<-]|_]; first by rewrite leqnn lst_nonempty.
rewrite /moves; case F: (st u) => [k'|] //; case: ifP => // /andP[_ kk] [<-].
by have := IH k'; rewrite E => /(_ F) [eu _]; split; first exact: leq_trans eu _.
Qed.

Lemma seats_le t i : (trip t).2 i <= q.
Proof. by case: t => [|t] //=; case: (trip t) => st s /=; rewrite geq_minl. Qed.

(* Users that ask, split by the item. *)
Lemma sum_items st (F : I -> {set U}) : (forall i, F i \subset asked st i) ->
  \sum_i #|F i| = #|[set u in P | if st u is Some k then u \in F (item u k) else false]|.
Proof.
move=> FA; rewrite -[RHS]sum1_card (partition_big (fun u => if st u is Some k then item u k else i0) xpredT) //=.
apply: eq_bigr => i _; rewrite -sum1_card; apply: eq_bigl => u; rewrite !inE.
apply/idP/idP => [uF|].
  have := subsetP (FA i) _ uF; rewrite !inE => /andP[-> /=]; case: (st u) => // k /eqP E.
  by rewrite E uF eqxx.
by case/andP=> /andP[_]; case: (st u) => // k uF /eqP <-.
Qed.

Lemma refuse_sub A m : refuse A m \subset A.
Proof. by apply/subsetP => u; rewrite inE => /andP[]. Qed.

(* An item seats those whom it does not refuse. *)
Lemma seats_filled t i : let: (st, s) := trip t in
  minn q (s i + #|asked st i|) + #|refused st s i| = s i + #|asked st i|.
Proof.
have := seats_le t i; case: (trip t) => st s /= sq; rewrite /refused card_refuse.
set b := #|asked st i|; case: (leqP (q - s i) b) => c.
  have -> : minn q (s i + b) = q by apply/minn_idPl; rewrite -leq_subLR.
  by rewrite -{1}(subnK sq) addnAC subnKC // addnC.
have -> : minn q (s i + b) = s i + b by apply/minn_idPr; rewrite -leq_subRL // ltnW.
have /eqP -> : b - (q - s i) == 0 by rewrite subn_eq0 ltnW.
by rewrite addn0.
Qed.

(* Whoever asks on the next trip enters then, or was refused and has a next item. *)
Lemma who_asks t : let: (st, s) := trip t in
  #|[set u in P | isSome ((trip t.+1).1 u)]| + \sum_i #|stays t i| =
  #|[set u in P | enter u == t.+1]| + \sum_i #|refused st s i|.
Proof.
have bound := @status_bound t; rewrite /stays /=; case: (trip t) bound => st s /= bound.
have sub i : refused st s i \subset asked st i by apply: refuse_sub.
rewrite /moves; move: (refused st s) sub => RF sub.
have subY i : [set u in RF i | if st u is Some k then k.+1 == size (lst u) else false] \subset asked st i.
  by apply: subset_trans (sub i); apply/subsetP => u; rewrite inE => /andP[].
rewrite (sum_items sub) (sum_items subY) -cardsUI -[RHS]cardsUI; congr (_ + _); apply: eq_card => u; rewrite !inE.
  case: (u \in P) => //=; case E: (st u) => [k|] /=; last by case: eqP.
  have [eu ks] := bound _ _ E; rewrite ltn_eqF ?ltnS // !inE E /=.
  by case: (u \in RF _) => //=; rewrite [k.+1 < _]ltn_neqAle ks andbT; case: eqP.
case: (u \in P) => //=; case E: (st u) => [k|] /=; rewrite ?andbF //.
have [eu ks] := bound _ _ E; rewrite ltn_eqF ?ltnS // !inE E /=.
by case: (u \in RF _) => //=; rewrite ltn_neqAle ks andbT; case: eqP.
Qed.

(* Nobody is lost: who has entered has a seat, stays, or asks. *)
Lemma conserved t :
  \sum_i (trip t).2 i + \sum_(r < t) \sum_i #|stays r i| + #|[set u in P | isSome ((trip t).1 u)]| =
  #|[set u in P | enter u <= t]|.
Proof.
elim: t => [|t IH].
  rewrite big_ord0 big1 // !add0n /=; apply: eq_card => u; rewrite !inE leqn0; by case: (enter u == 0).
have seats := seats_filled t; have asks := who_asks t.
have split : #|[set u in P | enter u <= t.+1]| = #|[set u in P | enter u == t.+1]| + #|[set u in P | enter u <= t]|.
  rewrite -cardsUI [X in _ + X]eq_card0 ?addn0.
    by apply: eq_card => u; rewrite !inE -andb_orr leq_eqVlt ltnS.
  by move=> u; rewrite !inE; case: eqP => [->|]; rewrite ?ltnn ?andbF.
rewrite split -IH big_ord_recr /=; move: seats asks IH; rewrite /stays /=; case E: (trip t) => [st s] /= seats asks _.
have -> : #|[set u in P | isSome (st u)]| = \sum_i #|asked st i|.
  rewrite (@sum_items st (asked st)) //; apply: eq_card => u; rewrite !inE; case uP: (u \in P) => //=.
  by case E': (st u) => [k|] //; rewrite !inE uP E' eqxx.
have F : \sum_i (minn q (s i + #|asked st i|) + #|refused st s i|) = \sum_i (s i + #|asked st i|).
  by apply: eq_bigr => i _; apply: seats.
rewrite !big_split /= in F.
move: asks F; set N := #|_|; set Y := \sum_i #|[set u in refused st s i | _]|; set M := \sum_i minn _ _.
set past := \sum_(r < t) _; set E0 := #|_| => asks F.
by move: asks F; rewrite -!plusE; lia.
Qed.


(* Every user ends at one item. *)
Lemma votes_total : \sum_i votes i = #|P|.
Proof.
have all_in : #|[set u in P | enter u <= last]| = #|P| by apply: eq_card => u; rewrite !inE enter_in_time andbT.
rewrite -all_in -conserved /votes !big_split /= exchange_big /= addnAC; congr (_ + _).
rewrite (@sum_items (trip last).1 (asked (trip last).1)) //; apply: eq_card => u; rewrite !inE; case uP: (u \in P) => //=.
by case E': ((trip last).1 u) => [k|] //; rewrite !inE uP E' eqxx.
Qed.
End World.

(* With more users: those of before ask the same, fewer seats are left, and whoever was refused still is. *)
Lemma more_users (P P' : {set U}) : P \subset P' -> forall t,
  (forall u k, u \in P -> (trip P t).1 u = Some k -> (trip P' t).1 u = Some k) /\
  (forall i, (trip P t).2 i <= (trip P' t).2 i).
Proof.
move=> PP; have asks (st st' : U -> option nat) i : (forall u k, u \in P -> st u = Some k -> st' u = Some k) ->
    asked P st i \subset asked P' st' i.
  move=> stst; apply/subsetP => u; rewrite !inE => /andP[uP]; case E: (st u) => [k|] // ki.
  by rewrite (subsetP PP) // (stst _ _ uP E).
elim=> [|t [IHst IHs]]; first by split.
move: IHst IHs => /=; case: (trip P t) => st s; case: (trip P' t) => st' s' /= IHst IHs.
have sub i := asks st st' i IHst; split=> [u k uP|i].
  case: eqP => // _; rewrite /moves; case E: (st u) => [k'|] //; rewrite (IHst _ _ uP E).
  case: ifP => // /andP[ur ->]; rewrite andbT; case: ifP => // /negP[]; move: ur.
  by apply/subsetP/refuse_mono; rewrite ?sub // leq_sub2l.
rewrite leq_min geq_minl /=; apply: leq_trans (geq_minr _ _) _.
by rewrite leq_add // subset_leq_card.
Qed.

Lemma votes_mono (P P' : {set U}) i : P \subset P' -> votes P i <= votes P' i.
Proof.
move=> PP; have st t := (more_users PP t).1; have s t := (more_users PP t).2.
have sub t j : asked P (trip P t).1 j \subset asked P' (trip P' t).1 j.
  apply/subsetP => u; rewrite !inE => /andP[uP]; case E: ((trip P t).1 u) => [k|] // ki.
  by rewrite (subsetP PP) // (st _ _ _ uP E).
rewrite /votes !leq_add ?s ?subset_leq_card //; apply: leq_sum => t _; apply: subset_leq_card.
apply/subsetP => u; rewrite /stays inE => /andP[uR lk]; rewrite inE; apply/andP; split.
  exact: (subsetP (refuse_mono (sub t i) (leq_sub2l q (s t i)))) _ uR.
have uP : u \in P by move: uR; rewrite inE => /andP[]; rewrite inE => /andP[].
by move: lk; case E: ((trip P t).1 u) => [k|] //; rewrite (st _ _ _ uP E).
Qed.

(* Theorem 2: one more user moves one count by one. *)
Theorem one_count (P : {set U}) v : v \notin P ->
  exists j, forall i, votes (v |: P) i = votes P i + (i == j).
Proof.
move=> vP; have mono i : votes P i <= votes (v |: P) i by apply: votes_mono; apply: subsetUr.
have one : \sum_i (votes (v |: P) i - votes P i) = 1.
  by rewrite sumnB // !votes_total cardsU1 vP addnK.
have [j dj] : exists j, 0 < votes (v |: P) j - votes P j.
  apply/existsP; apply: contraPT one => /existsPn none; rewrite big1 // => i _.
  by apply/eqP; rewrite -leqn0 leqNgt none.
exists j => i; move: one; rewrite (bigD1 j) //= => one.
have [-> | ij] := eqVneq i j.
  have := leq_addr (\sum_(i | i != j) (votes (v |: P) i - votes P i)) (votes (v |: P) j - votes P j).
  rewrite one => le1; have d1 : votes (v |: P) j - votes P j = 1 by apply/eqP; rewrite eqn_leq le1 dj.
  by rewrite -(subnKC (mono j)) d1.
have rest : \sum_(i | i != j) (votes (v |: P) i - votes P i) = 0.
  by move: one dj; case: (votes _ _ - _) => // n [] /eqP; rewrite addn_eq0 => /andP[_ /eqP].
move/eqP: rest; rewrite sum_nat_eq0 => /forallP/(_ i); rewrite ij /= subn_eq0 => le.
by apply/eqP; rewrite addn0 eqn_leq le mono.
Qed.
End Votes.

Section Release.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.
Variables (R : realFieldType) (I Z : finType) (nu : Z -> R) (val : Z -> nat).
Hypothesis nu_ge0 : forall z, 0 <= nu z.
Hypothesis nu_1 : \sum_z nu z = 1.
Variables (e delta : R).
Hypothesis e_ge0 : 0 <= e.
(* Equation (1) of vote.md: the noise of one count, moved by one; the program checks it in integers. *)
Hypothesis shift : forall A : pred nat, Pr nu (fun z => A (val z).+1) <= e * Pr nu (fun z => A (val z)) + delta.
Hypothesis shift' : forall A : pred nat, Pr nu (fun z => A (val z)) <= e * Pr nu (fun z => A (val z).+1) + delta.
Definition noisy (n : I -> nat) (w : {ffun I -> Z}) : {ffun I -> nat} := [ffun i => (n i + val (w i))%N].

(* Theorem 1: what is computed from all noisy counts, if one count moves by one. *)
Theorem vote_private (n n' : I -> nat) j : (forall i, n' i = (n i + (i == j))%N) -> forall o : pred {ffun I -> nat},
  Pr (prod_mu nu) (fun w => o (noisy n' w)) <= e * Pr (prod_mu nu) (fun w => o (noisy n w)) + delta /\
  Pr (prod_mu nu) (fun w => o (noisy n w)) <= e * Pr (prod_mu nu) (fun w => o (noisy n' w)) + delta.
Proof.
move=> nn o; pose y (w : {ffun I -> Z}) (x : nat) : {ffun I -> nat} :=
  [ffun i => if i == j then (n j + x)%N else (n i + val (w i))%N].
have yn w z : noisy n (upd w j z) = y w (val z).
  by apply/ffunP => i; rewrite !ffunE; case: eqP => [->|].
have yn' w z : noisy n' (upd w j z) = y w (val z).+1.
  by apply/ffunP => i; rewrite !ffunE nn; case: eqP => [->|]; rewrite ?addn0 // addn1 addSn addnS.
have one (A : pred nat) : \sum_z nu z * (A (val z))%:R = Pr nu (fun z => A (val z)) by rewrite PrE.
have one' (A : pred nat) : \sum_z nu z * (A (val z).+1)%:R = Pr nu (fun z => A (val z).+1) by rewrite PrE.
rewrite !PrE (redraw nu_1 j (fun w => (o (noisy n' w))%:R)) (redraw nu_1 j (fun w => (o (noisy n w))%:R)).
split; apply: (mixture (prod_mu_ge0 nu_ge0) (prod_mu_1 I nu_1)) => w.
  under eq_bigr do rewrite yn'; under [X in _ <= _ * X + _]eq_bigr do rewrite yn.
  by rewrite (one' (fun x => o (y w x))) (one (fun x => o (y w x))); apply: shift (fun x => o (y w x)).
under eq_bigr do rewrite yn; under [X in _ <= _ * X + _]eq_bigr do rewrite yn'.
by rewrite (one' (fun x => o (y w x))) (one (fun x => o (y w x))); apply: shift' (fun x => o (y w x)).
Qed.
End Release.
