(* series: gsu whose rounds are spread over nights, with norm that users save (docs/explanation/series.md). *)
From mathcomp Require Import all_ssreflect all_algebra.
Require Import Probability Gaussian Identical.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Histories.
Variables (R : realFieldType) (I : finType).
Implicit Types (h : hist R I) (rel : releases I).

(* Histories that agree on some items. *)
Definition same (A : {pred I}) h h' := size h = size h' /\ {in A, forall i, own h i = own h' i}.

Lemma same_sub (A B : {pred I}) h h' : {subset B <= A} -> same A h h' -> same B h h'.
Proof. by move=> BA [hh e]; split=> // i /BA; apply: e. Qed.

Lemma same_take A q h h' : same A h h' -> same A (take q h) (take q h').
Proof.
by case=> hh e; split=> [|i iA]; [rewrite !size_take hh | rewrite /own !map_take; congr take; apply: e].
Qed.

Lemma out_take q rel : {subset out (take q rel) <= out rel}.
Proof.
move=> i iq; have := erefl (out rel); rewrite -{2}(cat_take_drop q rel) /out big_cat => ->.
by rewrite inE; apply/orP; left.
Qed.

Lemma outP rel i : i \in out rel -> exists2 r, (r < size rel)%N & i \in nth set0 rel r.
Proof.
rewrite /out; elim: rel => [|A rel IH]; first by rewrite big_nil inE.
by rewrite big_cons inE => /orP[iA|/IH[r]]; [exists 0%N | exists r.+1].
Qed.

(* What goes out in one round goes out in no other. *)
Definition once rel := forall q r i, (q < r < size rel)%N -> i \in nth set0 rel q -> i \notin nth set0 rel r.

Lemma reading_once cross c n h : once (read cross c n h).
Proof.
elim: n => [|n IH] q r i; first by rewrite andbF.
rewrite /= size_rcons ltnS => /andP[qr rn]; rewrite !nth_rcons size_read in rn *.
rewrite (leq_trans qr rn) => iq; move: rn; rewrite leq_eqVlt => /orP[/eqP rn|rn]; last first.
  by rewrite rn; apply: (IH q); rewrite // qr size_read.
rewrite rn ltnn eqxx inE; apply/negP => /and3P[_ /negP no _]; apply: no.
have qn : (q < size (read cross c n h))%N by rewrite size_read -rn.
rewrite -(cat_take_drop q.+1 (read cross c n h)) /out big_cat inE (take_nth set0 qn).
by rewrite -cats1 big_cat inE big_seq1 iq orbT.
Qed.
End Histories.

Section Game.
Variables (R : realFieldType) (I U : finType).
Implicit Types (h : hist R I) (rel : releases I).

(* Before each round the adversary, who has seen the releases so far and all noisy sums of what is out, says what each
   user brings and who is erased. Of what is brought, items that are known or out do not count; what counts comes in the
   order of ranks. *)
Variables (brings : U -> hist R I -> releases I -> seq I) (erased : U -> hist R I -> releases I -> bool).
Hypothesis brings_seen : forall u h h' rel, same (mem (out rel)) h h' -> brings u h rel = brings u h' rel.
Hypothesis erased_seen : forall u h h' rel, same (mem (out rel)) h h' -> erased u h rel = erased u h' rel.

(* A user: all items that ever took a rank, in the order of ranks, and the rank from which on it holds them. *)
Variable D0 : nat.
Definition ranked (st : seq I * nat) (i : I) : seq I * nat :=
  if (i \in drop st.2 st.1) || (D0 <= size st.1)%N then st else (rcons st.1 i, st.2).
Fixpoint user u n h rel : seq I * nat :=
  let st := if n is m.+1 then user u m h rel else ([::], 0%N) in
  foldl ranked (st.1, if erased u (take n h) (take n rel) then size st.1 else st.2)
    (brings u (take n h) (take n rel)).
Definition past u n h rel := (user u n h rel).1.
Definition held u n h rel := let st := user u n h rel in drop st.2 st.1.
Definition rank u n h rel i := ((user u n h rel).2 + index i (held u n h rel))%N.

Lemma ranked_grows s st : exists2 t, (foldl ranked st s).1 = st.1 ++ t & (foldl ranked st s).2 = st.2.
Proof.
elim: s st => [|i s IH] st; first by exists [::]; rewrite ?cats0.
have [t e1 e2] := IH (ranked st i); rewrite /= {}e1 {}e2 /ranked; case: ifP => _; first by exists t.
by exists (i :: t); rewrite //= cat_rcons.
Qed.

(* A rank that is taken stays taken, by the same item. *)
Lemma past_grows u n m h rel : (n <= m)%N -> exists t, past u m h rel = past u n h rel ++ t.
Proof.
elim: m => [|m IH]; first by rewrite leqn0 => /eqP ->; exists [::]; rewrite cats0.
rewrite leq_eqVlt => /orP[/eqP ->|]; first by exists [::]; rewrite cats0.
rewrite ltnS => /IH[t e]; rewrite /past /=.
have [t' -> _] := ranked_grows (brings u (take m.+1 h) (take m.+1 rel))
  ((user u m h rel).1, if erased u (take m.+1 h) (take m.+1 rel) then size (user u m h rel).1 else (user u m h rel).2).
by exists (t ++ t'); rewrite /= -/(past u m h rel) e catA.
Qed.

Lemma past_sub u n m h rel : (n <= m)%N -> {subset past u n h rel <= past u m h rel}.
Proof. by move=> /(past_grows u h rel)[t ->] i; rewrite mem_cat => ->. Qed.

Lemma ranks_D0 u n h rel : (size (past u n h rel) <= D0)%N.
Proof.
have step st s : (size st.1 <= D0)%N -> (size (foldl ranked st s).1 <= D0)%N.
  elim: s st => //= i s IH st sD; apply: IH; rewrite /ranked; case: ifP => // /norP[_].
  by rewrite -ltnNge size_rcons.
by rewrite /past; elim: n => [|n IH] /=; apply: step.
Qed.

Lemma user_take u n m h rel : (n <= m)%N -> user u n (take m h) (take m rel) = user u n h rel.
Proof. by elim: n => [|n IH] nm /=; rewrite ?take0 // !take_take // IH // ltnW. Qed.

Lemma held_past u n h rel : {subset held u n h rel <= past u n h rel}.
Proof. by move=> i /mem_drop. Qed.

(* An item that comes back after an erasure has a later rank than it had at first. *)
Lemma first_rank u n h rel i : i \in held u n h rel -> (index i (past u n h rel) <= rank u n h rel i)%N.
Proof.
rewrite /rank /past /held; case: (user u n h rel) => p k /= ik.
rewrite -{1}(cat_take_drop k p) index_cat; case: ifP => [it|_].
  apply: leq_trans (leq_addr _ _); apply: ltnW; apply: leq_trans (_ : size (take k p) <= k)%N.
    by rewrite index_mem.
  by rewrite size_take; case: ltnP.
by rewrite leq_add2r size_take; case: ltnP.
Qed.

Lemma index_grows u n m h rel i : (n <= m)%N -> i \in past u n h rel ->
  index i (past u m h rel) = index i (past u n h rel).
Proof. by move=> /(past_grows u h rel)[t ->] ip; rewrite index_cat ip. Qed.

(* Nobody's items depend on the noise of an item that is not out. *)
Lemma user_same i u n h h' rel : same (predC1 i) h h' -> i \notin out rel -> user u n h rel = user u n h' rel.
Proof.
move=> e io; have seen q : same (mem (out (take q rel))) (take q h) (take q h').
  by apply: same_sub (same_take q e) => k /out_take ko; apply: contraNneq io => <-.
by elim: n => [|n IH] /=; rewrite (brings_seen _ (seen _)) (erased_seen _ (seen _)) ?IH.
Qed.

(* A user's weights in the round after h: of what it ever held, and of what everybody has seen. *)
Variable wt : U -> hist R I -> releases I -> I -> R.
Hypothesis wt_own : forall u h h' rel,
  same [pred i | (i \in out rel) || (i \in past u (size h) h rel)] h h' -> wt u h rel =1 wt u h' rel.

(* What the users of P hold or ever held, and give. *)
Definition candidates (P : {set U}) h rel : {set I} := [set i | [exists u in P, i \in past u (size h) h rel]].
Definition sums (P : {set U}) h rel i : R := \sum_(u in P) wt u h rel i.

Variables (V : finType) (rounds : nat) (nu : V -> R) (noise : nat -> V -> R).
Hypothesis nu_ge0 : forall v, 0 <= nu v.
Hypothesis nu_1 : \sum_v nu v = 1.
Local Notation W := {ffun I -> V}.
Local Notation PrW := (Pr (prod_mu nu : W -> R)).
Variables (a rho slack : nat -> R) (cross : nat -> seq R -> bool).
Hypothesis a_ge0 : forall q, 0 <= a q.
Hypothesis cross_slack : forall k g, size g = k.+1 -> cross k g -> rho k <= \sum_(q < k.+1) a q * nth 0 g q + slack k.

(* In rounds that count for a test: nothing where nothing is held, and the cap of its rank. *)
Variable cap : nat -> R.
Hypothesis cap_ge0 : forall j, 0 <= cap j.
Hypothesis cap_falls : forall j k, (j <= k)%N -> cap k <= cap j.
Hypothesis wt_out : forall u h rel i, 0 < a (size h) -> i \notin held u (size h) h rel -> wt u h rel i = 0.
Hypothesis wt_cap : forall u h rel i, 0 < a (size h) -> wt u h rel i <= cap (rank u (size h) h rel i).

(* A run shows any function of noisy sums and releases, as soon as it is over. *)
Variables (O : Type) (show : hist R I * releases I -> O).
Definition series (P : {set U}) (w : W) : O := show (world noise cross (sums P) (candidates P) w rounds).

Section NewUser.
Variables (P : {set U}) (v : U).
Local Notation c := (candidates P).
Local Notation cv := (candidates [set v]).
Local Notation rd := (reading cross c).
Local Notation pastR u h := (past u (size h) h (rd h)).

Lemma pastR_take u n h : (n <= size h)%N -> pastR u (take n h) = past u n h (rd h).
Proof.
move=> nh; rewrite reading_take // size_takel // /past.
by rewrite -(@take_read _ _ cross c (size h) n h nh) user_take.
Qed.

Lemma candidates_grow q k h i : (q <= k <= size h)%N -> i \in c (take q h) (rd (take q h)) ->
  i \in c (take k h) (rd (take k h)).
Proof.
case/andP=> qk kh; rewrite !inE => /exists_inP[u uP ip]; apply/exists_inP; exists u => //.
move: ip; rewrite !pastR_take // ?(leq_trans qk) //; exact: past_sub.
Qed.

(* What is out was a candidate. *)
Lemma out_candidate n h i : (n <= size h)%N -> i \in out (read cross c n h) ->
  exists2 q, (q < n)%N & i \in c (take q h) (rd (take q h)).
Proof.
elim: n => [|n IH] nh /=; first by rewrite /out big_nil inE.
rewrite /out -cats1 big_cat inE big_seq1 => /orP[/(IH (ltnW nh))[q qn iq]|].
  by exists q; first apply: ltnW.
by rewrite inE => /andP[ic _]; exists n; rewrite // reading_take // ltnW.
Qed.

(* The others of Q give, Q without v or with v; releases are those without v. *)
Variable Q : {set U}.
Hypothesis QP : Q \subset v |: P.
Definition hs (w : W) r := run noise (fun h => sums Q h (rd h)) w r.

Lemma size_hs w r : size (hs w r) = r. Proof. exact: size_run. Qed.
Lemma take_hs w q r : (q <= r)%N -> take q (hs w r) = hs w q. Proof. exact: take_run. Qed.

(* Until somebody holds an item nothing depends on its noise. *)
Lemma unseen (w w' : W) i s : (forall k, k != i -> w k = w' k) ->
  (forall q, (q < s)%N -> forall u, u \in v |: P -> i \notin pastR u (hs w q)) ->
  forall r, (r <= s)%N ->
    [/\ same (predC1 i) (hs w r) (hs w' r), rd (hs w r) = rd (hs w' r) & i \notin out (rd (hs w r))].
Proof.
move=> ww none r rs.
have notout q : (q <= s)%N -> i \notin out (rd (hs w q)).
  move=> qs; apply/negP; rewrite /reading size_hs => /out_candidate[|q' qq]; first by rewrite size_hs.
  rewrite take_hs ?(ltnW qq) // inE => /exists_inP[u uP ip].
  by have := none q' (leq_trans qq qs) u; rewrite inE uP orbT ip => /(_ isT).
suff [] : same (predC1 i) (hs w r) (hs w' r) /\ rd (hs w r) = rd (hs w' r) by split=> //; apply: notout.
elim: r rs => [|r IH] rs; first by split.
have [e el] := IH (ltnW rs); have io := notout r (ltnW rs).
set h := hs w r in e el io *; set h' := hs w' r in e el *.
have hr : size h = r by apply: size_hs. have hr' : size h' = r by apply: size_hs.
have users u : user u r h (rd h) = user u r h' (rd h) by apply: (user_same _ _ e io).
have noone u : u \in v |: P -> i \notin past u r h (rd h) by move=> uP; have := none r rs u uP; rewrite size_hs.
have gives k : sums Q h (rd h) k = sums Q h' (rd h') k.
  rewrite -el; apply: eq_bigr => u uQ; apply: wt_own; apply: same_sub e => k' /orP[ko|kp].
    by apply: contraNneq io => <-.
  by apply: contraNneq (noone u (subsetP QP _ uQ)) => <-; rewrite hr in kp.
have hS : hs w r.+1 = rcons h [ffun k => sums Q h (rd h) k + noise r (w k)] by [].
have hS' : hs w' r.+1 = rcons h' [ffun k => sums Q h' (rd h') k + noise r (w' k)] by [].
have e' : same (predC1 i) (hs w r.+1) (hs w' r.+1).
  split=> [|k ki]; first by rewrite !size_hs.
  rewrite hS hS' /own !map_rcons -!/(own _ _) e.2 // !ffunE gives (ww k) //.
split=> //; rewrite /reading !size_hs /= !take_hs // ?leqnn //.
have rdE g (gg : hs g r = hs g r) : read cross c r (hs g r.+1) = rd (hs g r).
  by rewrite /reading size_hs -(take_hs g (leqnSn r)) read_take.
rewrite !rdE // -/h -/h' -el; congr rcons; apply/setP => k; rewrite !inE.
have [->|ki] := eqVneq k i.
  have none' (g : hist R I) : size g = r -> (forall u, user u r g (rd h) = user u r h (rd h)) ->
      [exists u in P, i \in past u (size g) g (rd h)] = false.
    move=> gr gu; apply/exists_inP => -[u uP]; rewrite gr /past gu; apply/negP/noone.
    by rewrite inE uP orbT.
  by rewrite !none'.
rewrite (e'.2 k ki); congr (_ && _); apply: eq_existsb => u.
by rewrite hr hr' /past users.
Qed.

(* v is the first to hold i, from round s on, under its rank j. *)
Definition starts (h : hist R I) s i j : bool := let g := take s h in
  [&& i \in pastR v g, index i (pastR v g) == j, i \notin c g (rd g) & [forall q : 'I_s, i \notin pastR v (take q h)]].

Lemma starts_fresh w i x s j : (s <= rounds)%N ->
  starts (hs w rounds) s i j -> starts (hs (upd w i x) rounds) s i j.
Proof.
move=> sr /and4P[ip ij ic /forallP before]; set w' := upd w i x.
have ww k : k != i -> w k = w' k by move=> /negbTE ki; rewrite ffunE ki.
have le q : (q < s)%N -> (q <= rounds)%N by move=> qs; apply: leq_trans (ltnW qs) sr.
have none q : (q < s)%N -> forall u, u \in v |: P -> i \notin pastR u (hs w q).
  move=> qs u; rewrite in_setU1 => /orP[/eqP ->|uP].
    by have := before (Ordinal qs); rewrite /= take_hs // le.
  apply: contraNN ic => iu; apply: (@candidates_grow q) => /=.
    by rewrite (ltnW qs) size_hs.
  by rewrite take_hs ?le // inE; apply/exists_inP; exists u.
have users q : (q <= s)%N -> forall u, pastR u (hs w' q) = pastR u (hs w q).
  move=> qs u; have [e <- io] := unseen ww none qs.
  by rewrite !size_hs /past -(user_same u q e io).
have ceq : c (hs w' s) (rd (hs w' s)) = c (hs w s) (rd (hs w s)).
  by apply/setP => k; rewrite !inE; apply: eq_existsb => u; rewrite users.
rewrite /starts !take_hs // ceq users //; rewrite !take_hs // in ip ij ic; apply/and4P; split=> //.
apply/forallP => q; have := before q; rewrite !take_hs ?le // users //; exact: ltnW.
Qed.

Lemma starts_one h s s' i i' j : (s <= s' <= size h)%N -> starts h s i j -> starts h s' i' j -> i = i'.
Proof.
case/andP=> ss sh /and4P[ip /eqP ij _ _] /and4P[ip' /eqP ij' _ _].
rewrite !pastR_take ?(leq_trans ss) // in ip ij ip' ij'.
rewrite -(nth_index i (past_sub ss ip)) -(nth_index i ip') ij'; congr nth.
by rewrite (index_grows ss ip).
Qed.

Definition chosen j (w : W) : option I := [pick i | [exists s : 'I_rounds, starts (hs w rounds) s i j]].

Lemma chosenE j w i : chosen j w = Some i <-> exists s : 'I_rounds, starts (hs w rounds) s i j.
Proof.
have one (s s' : 'I_rounds) k k' : starts (hs w rounds) s k j -> starts (hs w rounds) s' k' j -> k = k'.
  move=> st st'; case: (leqP s s') => ss; first by apply: starts_one st st'; rewrite ss size_hs ltnW.
  by apply/esym; apply: starts_one st' st; rewrite (ltnW ss) size_hs ltnW.
rewrite /chosen; case: pickP => [k /existsP[s st]|none].
  by split=> [[<-]|[s' st']]; [exists s | congr Some; apply: one st st'].
by split=> // -[s st]; have := none i; rewrite /= => /existsP[]; exists s.
Qed.

Variables (p : nat -> R) (dT : R).
Hypothesis A2 : forall j, (j < D0)%N -> Pr nu (crosses_alone rounds noise a rho slack (cap j)) <= p j.
Hypothesis A2_sum : \sum_(j < D0) p j <= dT.

(* Lemma 3 of series.md, of S and of S*. *)
Lemma rarely_bad : v \notin P -> PrW (fun w => bad rounds cross c cv (hs w rounds)) <= dT.
Proof.
move=> vP; apply: le_trans A2_sum.
apply: (@le_trans _ _ (PrW (fun w => [exists j : 'I_D0,
    if chosen j w is Some i then crosses_alone rounds noise a rho slack (cap j) (w i) else false]))); last first.
  apply: le_trans (Pr_some (prod_mu_ge0 nu_ge0) _) _; apply: ler_sum => j _.
  apply: (fresh_choice nu_ge0 nu_1 (pick := chosen j) (A2 (ltn_ord j))) => w i x /chosenE[s st].
  by apply/chosenE; exists s; apply: starts_fresh st; apply: ltnW.
apply: (Pr_mono (prod_mu_ge0 nu_ge0)) => w /existsP[k /existsP[i /and3P[iv ic cr]]].
set h := hs w rounds in iv ic cr; have hR : size h = rounds by apply: size_hs.
have kr := ltnW (ltn_ord k).
have rdq q : (q <= rounds)%N -> read cross c q h = rd (take q h) by move=> qr; rewrite reading_take ?hR.
rewrite rdq // in iv ic.
have ip : i \in pastR v (take k h) by move: iv; rewrite inE => /exists_inP[u]; rewrite inE => /eqP ->.
have ex : exists s, (i \in pastR v (take s h)) && (s <= k)%N by exists k; rewrite ip leqnn.
case: (ex_minnP ex) => s /andP[is_ sk] first.
set j := index i (pastR v (take s h)).
have jD : (j < D0)%N by apply: leq_trans (ranks_D0 v s h (rd h)); rewrite -pastR_take ?hR ?(leq_trans sk) // index_mem.
have st : starts h s i j.
  rewrite /starts is_ eqxx /=; apply/andP; split.
    by apply: contraNN ic => ic; apply: candidates_grow ic; rewrite sk hR.
  apply/forallP => q; apply/negP => iq; have := first q; rewrite iq (leq_trans (ltnW (ltn_ord q)) sk) => /(_ isT).
  by rewrite leqNgt ltn_ord.
apply/existsP; exists (Ordinal jD).
have -> : chosen (Ordinal jD) w = Some i by apply/chosenE; exists (Ordinal (leq_ltn_trans sk (ltn_ord k))).
apply: (crossed_alone a_ge0 cross_slack (ltn_ord k) _ cr) => q qk aq.
rewrite -/(hs w q) /=; set g := hs w q.
have gE : take q h = g by rewrite /h take_hs // (leq_trans qk).
have gq : size g = q by apply: size_hs.
have none u : u \in P -> wt u g (rd g) i = 0.
  move=> uP; apply: wt_out; rewrite gq //; apply: contraNN ic => /held_past iu.
  apply: (@candidates_grow q); rewrite ?qk ?hR // gE inE; apply/exists_inP; exists u => //.
  by rewrite gq.
have own_ : wt v g (rd g) i <= cap j.
  case: (boolP (i \in held v q g (rd g))) => [ih|nh]; last by rewrite wt_out ?gq.
  apply: le_trans (wt_cap _ _ _ _) _; rewrite ?gq //; apply: cap_falls.
  apply: leq_trans (first_rank ih).
  have sq : (s <= q)%N.
    by apply: first; rewrite (leq_trans qk) // gE gq (held_past ih).
  have qR : (q <= rounds)%N by apply: leq_trans qk kr.
  have e1 : pastR v (take s h) = past v s h (rd h) by apply: pastR_take; rewrite hR (leq_trans sq).
  have e2 : past v q g (rd g) = past v q h (rd h) by rewrite -[RHS]pastR_take ?hR // gE gq.
  by rewrite e2 /j e1; rewrite e1 in is_; rewrite (index_grows sq is_).
rewrite /sums; case: (boolP (v \in Q)) => vQ.
  rewrite (bigD1 v) //= big1 ?addr0 // => u /andP[uQ uv]; apply: none.
  by have := subsetP QP _ uQ; rewrite in_setU1 (negbTE uv).
rewrite big1 ?cap_ge0 // => u uQ; apply: none.
have := subsetP QP _ uQ; rewrite in_setU1 => /orP[/eqP uv|//]; by rewrite uv (negbTE vQ) in uQ.
Qed.
End NewUser.

Variables (e dG dT : R) (prec : nat -> R) (total : R).
Hypothesis e_ge0 : 0 <= e.
Hypothesis A1 : forall s x : hist R I -> I -> R, (forall h, size h = rounds -> spent prec x h <= total) ->
  let h w := run noise s w rounds in let h' w := run noise (fun h i => s h i + x h i) w rounds in
  forall E : pred (hist R I), PrW (fun w => E (h' w)) <= e * PrW (fun w => E (h w)) + dG /\
    PrW (fun w => E (h w)) <= e * PrW (fun w => E (h' w)) + dG.
(* What a user gives in all rounds together, whatever is released. *)
Hypothesis cost : forall u h rel, size h = rounds -> size rel = rounds -> once rel ->
  \sum_(q < rounds) prec q * norm2 (wt u (take q h) (take q rel)) <= total.
Variables (p : nat -> R).
Hypothesis A2 : forall j, (j < D0)%N -> Pr nu (crosses_alone rounds noise a rho slack (cap j)) <= p j.
Hypothesis A2_sum : \sum_(j < D0) p j <= dT.

Theorem series_private (P : {set U}) (v : U) : v \notin P -> forall o : pred O,
  PrW (fun w => o (series (v |: P) w)) <= e * PrW (fun w => o (series P w)) + (dG + dT) /\
  PrW (fun w => o (series P w)) <= e * PrW (fun w => o (series (v |: P) w)) + (dG + dT).
Proof.
move=> vP o; pose c := candidates P; pose x h rel := wt v h rel.
have sumsE h rel i : sums (v |: P) h rel i = sums P h rel i + x h rel i.
  by rewrite /sums big_setU1 //= addrC.
have worldE w : series (v |: P) w = show (world noise cross (fun h rel i => sums P h rel i + x h rel i)
    (fun h rel => c h rel :|: candidates [set v] h rel) w rounds).
  rewrite /series; congr show; apply: world_ext => // h rel; apply/setP => i; rewrite !inE.
  apply/exists_inP/orP => [[u]|[]/exists_inP[u]].
  - rewrite in_setU1 => /orP[/eqP ->|uP] iu; [right|left]; apply/exists_inP; first by exists v; rewrite ?inE.
    by exists u.
  - by move=> uP iu; exists u; rewrite // in_setU1 uP orbT.
  - by rewrite inE => /eqP -> iu; exists v; rewrite // in_setU1 eqxx.
have -> : PrW (fun w => o (series (v |: P) w)) = PrW (fun w => o (show (world noise cross
    (fun h rel i => sums P h rel i + x h rel i) (fun h rel => c h rel :|: candidates [set v] h rel) w rounds))).
  by apply: eq_bigl => w; rewrite worldE.
apply: (identical nu_ge0 e_ge0 A1 _ _ _ show o).
- move=> h hr; rewrite /spent hr; have := @cost v h (reading cross c h) hr; rewrite /reading size_read.
  move=> /(_ hr (@reading_once _ _ cross c _ h)).
  apply: le_trans; rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigr => q _; congr (_ * norm2 _).
  have qh : (q <= size h)%N by rewrite hr ltnW.
  by rewrite /x1 /reading size_takel // read_take // take_read.
- exact: (@rarely_bad P v P (subsetUr _ _) p dT A2 A2_sum vP).
- have := @rarely_bad P v (v |: P) (introT subsetP (fun _ => id)) p dT A2 A2_sum vP; rewrite /hs => small.
  apply: le_trans small; rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigl => w.
  by congr (bad _ _ _ _ _); apply: run_ext => h i; rewrite sumsE.
Qed.
End Game.

(* Rule 4: norm that a user does not use is saved. *)
Section Saved.
Variables (R : realFieldType) (I U : finType).
Implicit Types (h : hist R I) (rel : releases I).
Variables (brings : U -> hist R I -> releases I -> seq I) (erased : U -> hist R I -> releases I -> bool) (D0 : nat).
Local Notation past := (past brings erased D0).
Local Notation held := (held brings erased D0).
Local Notation rank := (rank brings erased D0).

(* What a user with energy e gives; the round charges no less than its share f of the squared norm, and no more than e. *)
Variables (f : nat -> R) (charge : nat -> {ffun I -> R} -> R).
Variable gives : U -> R -> hist R I -> releases I -> {ffun I -> R}.
Hypothesis paid : forall u e h rel, 0 <= e -> let x := gives u e h rel in
  f (size h) * norm2 x <= charge (size h) x <= e.
Hypothesis gives_own : forall u e h h' rel,
  same [pred i | (i \in out rel) || (i \in past u (size h) h rel)] h h' -> gives u e h rel = gives u e h' rel.

(* It begins with 1 and pays: it never rises, and no erasure is asked for. *)
Fixpoint energy u n h rel : R :=
  if n is m.+1 then let e := energy u m h rel in e - charge m (gives u e (take m h) (take m rel)) else 1.
Definition saves u h rel : I -> R := gives u (energy u (size h) h rel) h rel.

Lemma energy_ge0 u n h rel : (n <= size h)%N -> 0 <= energy u n h rel.
Proof.
elim: n => [|n IH] nh; first exact: ler01.
have := paid u (take n h) (take n rel) (IH (ltnW nh)); rewrite /= size_takel ?(ltnW nh) // => /andP[_].
by rewrite subr_ge0.
Qed.

Lemma energy_take u n m h rel : (n <= m)%N -> energy u n (take m h) (take m rel) = energy u n h rel.
Proof. by elim: n => //= n IH nm; rewrite IH ?(ltnW nm) // !take_take // ltnW. Qed.

(* The squares, each by its own round's share, are 1 at most over the whole window. *)
Theorem saved_norm u h rel n : (n <= size h)%N ->
  \sum_(q < n) f q * norm2 (saves u (take q h) (take q rel)) <= 1.
Proof.
move=> nh; apply: (@le_trans _ _ (1 - energy u n h rel)); last by rewrite ler_subl_addr ler_addl energy_ge0.
elim: n nh => [|n IH] nh; first by rewrite big_ord0 subrr.
have n_h := ltnW nh; rewrite big_ord_recr /= opprB addrCA [X in _ <= X]addrC.
apply: ler_add; first exact: IH.
rewrite /saves size_takel // energy_take //.
by have := paid u (take n h) (take n rel) (energy_ge0 u rel n_h); rewrite /= size_takel // => /andP[].
Qed.

(* Noisy counts: in a round of counts a user gives 1/sqrt D0 at most, to items that it took a rank for, and that went out
   since the round of counts before. *)
Variables (counted : pred nat) (since : nat -> nat).
Hypothesis since_before : forall q r, counted q -> counted r -> (q < r)%N -> (q <= since r)%N.
Hypothesis counts : forall u e h rel i, counted (size h) -> let y := gives u e h rel i in
  y ^+ 2 *+ D0 <= 1 /\ (y != 0 -> (i \in past u (size h) h rel) && (i \in out (drop (since (size h)) rel))).

(* All that it gives there has norm 1 at most, over the whole window. *)
Theorem counted_norm u h rel n : once rel -> size h = n -> size rel = n -> (0 < D0)%N ->
  \sum_(q < n | counted q) norm2 (saves u (take q h) (take q rel)) <= 1.
Proof.
move=> on hn rn D0p; pose y q i := saves u (take q h) (take q rel) i.
have szq q : (q < n)%N -> size (take q h) = q by move=> qn; rewrite size_takel // hn ltnW.
have gave (q : 'I_n) i : counted q -> y q i ^+ 2 *+ D0 <= 1 /\
    (y q i != 0 -> (i \in past u q (take q h) (take q rel)) && (i \in out (drop (since q) (take q rel)))).
  move=> cq; have := @counts u (energy u (size (take q h)) (take q h) (take q rel)) (take q h) (take q rel) i.
  by rewrite /y /saves szq // => /(_ cq).
have where_ (q : 'I_n) i : counted q -> y q i != 0 ->
    i \in past u n h rel /\ exists2 r, (since q <= r < q)%N & i \in nth set0 rel r.
  move=> cq yq; have [_ /(_ yq)/andP[ip io]] := gave q i cq; split.
    by move: ip; rewrite /Series.past user_take //; apply: past_sub; apply: ltnW.
  have [r rs ir] := outP io; have rq : (since q + r < q)%N.
    by move: rs; rewrite size_drop size_takel ?ltn_subRL // rn ltnW.
  by exists (since q + r)%N; rewrite ?leq_addr //; move: ir; rewrite nth_drop nth_take.
have one (q r : 'I_n) i : counted q -> counted r -> (q < r)%N -> y q i != 0 -> y r i = 0.
  move=> cq cr qr yq; apply/eqP; apply: contraT => yr.
  have [_ [a /andP[_ aq] ia]] := where_ q i cq yq; have [_ [b /andP[rb br] ib]] := where_ r i cr yr.
  have := on a b i; rewrite ia ib rn => /(_ _ isT); rewrite (leq_trans aq) ?(leq_trans (since_before cq cr qr)) //=.
  by rewrite (ltn_trans br (ltn_ord r)) => /(_ isT).
have item i : (\sum_(q < n | counted q) y q i ^+ 2) *+ D0 <= (i \in past u n h rel)%:R.
  case: (pickP (fun q : 'I_n => counted q && (y q i != 0))) => [q /andP[cq yq]|none]; last first.
    rewrite big1 ?mul0rn ?ler0n // => q cq; have := none q; rewrite cq /= => /negbFE/eqP ->.
    by rewrite expr0n.
  rewrite (bigD1 q) //= big1 ?addr0 => [|r /andP[cr rq]]; last first.
    suff -> : y r i = 0 by rewrite expr0n.
    have [lt|gt|rq_] := ltngtP r q; last by move: rq; rewrite (val_inj rq_) eqxx.
      by apply/eqP; apply: contraT => yr; move/eqP: (one r q i cr cq lt yr); rewrite (negbTE yq).
    exact: (one q).
  have [-> _] := where_ q i cq yq.
  by have [] := gave q i cq.
rewrite /norm2 exchange_big /= -(ler_pmuln2r D0p) -sumrMnl.
apply: (@le_trans _ _ (\sum_i (i \in past u n h rel)%:R)); first by apply: ler_sum => i _; apply: item.
rewrite -natr_sum ler_nat; apply: leq_trans (ranks_D0 brings erased D0 u n h rel).
apply: leq_trans (card_size (past u n h rel)); rewrite -sum1_card [X in (_ <= X)%N]big_mkcond.
by rewrite leq_sum // => i _; case: (i \in _).
Qed.

(* What a user has left is a function of its own items. *)
Lemma saves_own u h h' rel : same [pred i | (i \in out rel) || (i \in past u (size h) h rel)] h h' ->
  saves u h rel =1 saves u h' rel.
Proof.
move=> e i; rewrite /saves -e.1; congr (fun_of_fin _ i).
suff E n : (n <= size h)%N -> energy u n h rel = energy u n h' rel by rewrite E //; apply: gives_own.
elim: n => //= n IH nh; have n_h := ltnW nh; rewrite -IH //.
suff -> : gives u (energy u n h rel) (take n h) (take n rel) = gives u (energy u n h rel) (take n h') (take n rel) by [].
apply: gives_own; apply: same_sub (same_take n e) => k; rewrite !inE size_takel // => /orP[/out_take -> //|].
by rewrite /Series.past user_take // => kp; rewrite (past_sub n_h kp) orbT.
Qed.

End Saved.

Section SeriesGaussian.
(* The whole window, on the noise of Gaussian.v. *)
Variables (R : realFieldType) (I U Z : finType) (rounds : nat) (zeta val : nat -> Z -> R).
Hypothesis zeta_ge0 : forall q z, 0 <= zeta q z.
Hypothesis zeta_1 : forall q, \sum_z zeta q z = 1.
Variables (D : R -> R -> R) (tau e : R) (prec : nat -> R).
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
Local Notation hist := (hist R I).
Local Notation releases := (releases I).

(* The coins: of the adversary, and of the order in which items take ranks. *)
Variables (C : finType) (lam : C -> R).
Hypothesis lam_ge0 : forall k, 0 <= lam k.
Hypothesis lam_1 : \sum_k lam k = 1.
Variables (brings : C -> U -> hist -> releases -> seq I) (erased : C -> U -> hist -> releases -> bool) (D0 : nat).
Hypothesis brings_seen : forall k u h h' rel, same (mem (out rel)) h h' -> brings k u h rel = brings k u h' rel.
Hypothesis erased_seen : forall k u h h' rel, same (mem (out rel)) h h' -> erased k u h rel = erased k u h' rel.
Local Notation past k := (past (brings k) (erased k) D0).
Local Notation held k := (held (brings k) (erased k) D0).
Local Notation rank k := (rank (brings k) (erased k) D0).

(* Tests, weights and energy as above. *)
Variables (a rho slack : nat -> R) (cross : nat -> seq R -> bool) (cap : nat -> R).
Hypothesis a_ge0 : forall q, 0 <= a q.
Hypothesis cross_slack : forall k g, size g = k.+1 -> cross k g -> rho k <= \sum_(q < k.+1) a q * nth 0 g q + slack k.
Hypothesis cap_ge0 : forall j, 0 <= cap j.
Hypothesis cap_falls : forall j k, (j <= k)%N -> cap k <= cap j.
Variables (f : nat -> R) (charge : nat -> {ffun I -> R} -> R).
Variable gives : C -> U -> R -> hist -> releases -> {ffun I -> R}.
Hypothesis gives_own : forall k u e h h' rel,
  same [pred i | (i \in out rel) || (i \in past k u (size h) h rel)] h h' -> gives k u e h rel = gives k u e h' rel.
Hypothesis gives_out : forall k u e h rel i,
  0 < a (size h) -> i \notin held k u (size h) h rel -> gives k u e h rel i = 0.
Hypothesis gives_cap : forall k u e h rel i,
  0 < a (size h) -> gives k u e h rel i <= cap (rank k u (size h) h rel i).
Hypothesis paid : forall k u e h rel, 0 <= e -> let x := gives k u e h rel in
  f (size h) * norm2 x <= charge (size h) x <= e.
(* The noise of each round pays for its own share, that of counts for a norm of 1. *)
Variables (counted : pred nat) (since : nat -> nat) (main more : R).
Hypothesis since_before : forall q r, counted q -> counted r -> (q < r)%N -> (q <= since r)%N.
Hypothesis counts : forall k u e h rel i, counted (size h) -> let y := gives k u e h rel i in
  y ^+ 2 *+ D0 <= 1 /\ (y != 0 -> (i \in past k u (size h) h rel) && (i \in out (drop (since (size h)) rel))).
Hypothesis D0_gt0 : (0 < D0)%N.
Hypothesis f_ge0 : forall q, 0 <= f q.
Hypothesis main_ge0 : 0 <= main.
Hypothesis more_ge0 : 0 <= more.
Hypothesis share_prec : forall q, ~~ counted q -> prec q <= f q * main.
Hypothesis count_prec : forall q, counted q -> prec q <= more.
Local Notation total := (main + more).
Variables (p : nat -> R) (dT : R).
Hypothesis A2 : forall j, (j < D0)%N -> Pr nu (crosses_alone rounds noise a rho slack (cap j)) <= p j.
Hypothesis A2_sum : \sum_(j < D0) p j <= dT.

Variables (O : Type) (show : hist * releases -> O).
Definition window (P : {set U}) (o : pred O) : R := Ex lam (fun k => Pr (prod_mu nu) (fun w : {ffun I -> V} =>
  o (series (brings k) (erased k) D0 (saves charge (gives k)) rounds noise cross show P w))).

(* The theorem of series.md. *)
Theorem series_gaussian (P : {set U}) (v : U) (o : pred O) : v \notin P ->
  let delta := D total e + tau *+ rounds + dT in
  window (v |: P) o <= e * window P o + delta /\ window P o <= e * window (v |: P) o + delta.
Proof.
move=> vP delta.
have a1 := @A1 R I Z zeta val zeta_ge0 zeta_1 D tau prec D_base D_ge0 tau_ge0 one_round rounds e total prec_ge0 e_ge0
  (addr_ge0 main_ge0 more_ge0).
have own k := saves_own charge (@gives_own k).
have cost k u h (rel : releases) : size h = rounds -> size rel = rounds -> once rel ->
    \sum_(q < rounds) prec q * norm2 (saves charge (gives k) u (take q h) (take q rel)) <= total.
  move=> hr relr on; pose n2 (q : nat) := norm2 (saves charge (gives k) u (take q h) (take q rel)).
  have n2_ge0 q : 0 <= n2 q by apply: sumr_ge0 => i _; apply: sqr_ge0.
  have saved : \sum_(q < rounds) f q * n2 q <= 1 by apply: saved_norm; rewrite ?hr //; apply: paid.
  have shown : \sum_(q < rounds | counted q) n2 q <= 1.
    exact: (@counted_norm _ _ _ (brings k) (erased k) D0 charge (gives k) counted since since_before (@counts k)).
  rewrite (bigID (fun q : 'I_rounds => counted q)) /= addrC; apply: ler_add.
    rewrite -[X in _ <= X]mulr1; apply: le_trans (ler_wpmul2l main_ge0 saved).
    rewrite mulr_sumr [X in X <= _]big_mkcond; apply: ler_sum => q _; rewrite mulrA [main * _]mulrC.
    case: ifP => cq; first by apply: ler_wpmul2r; [apply: n2_ge0 | apply: share_prec].
    by rewrite mulr_ge0 // mulr_ge0.
  rewrite -[X in _ <= X]mulr1; apply: le_trans (ler_wpmul2l more_ge0 shown).
  by rewrite mulr_sumr; apply: ler_sum => q cq; apply: ler_wpmul2r; [apply: n2_ge0 | apply: count_prec].
have each k := @series_private R I U (brings k) (erased k) (@brings_seen k) (@erased_seen k) D0
  (saves charge (gives k)) (own k) V rounds nu noise (@nu_ge0 R Z zeta zeta_ge0 rounds) (nu_1 zeta_1 rounds) a rho slack
  cross a_ge0 cross_slack cap cap_ge0 cap_falls (fun u h rel i => @gives_out k u _ h rel i)
  (fun u h rel i => @gives_cap k u _ h rel i) O show e (D total e + tau *+ rounds) dT prec total e_ge0 a1 (@cost k) p A2
  A2_sum P v vP o.
by split; apply: (mixture lam_ge0 lam_1) => k; case: (each k).
Qed.
End SeriesGaussian.
