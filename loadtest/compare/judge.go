package compare

import "sort"

// judge is an exact log of what one way of limiting admitted.
type judge struct {
	limit
	features map[string]*admissions
	verdict  verdict
}

// verdict is how right a way of limiting was.
type verdict struct {
	admitted, denied             int64
	wrongAdmissions, wrongDenied int64
	most                         int64 // that any window held
}

// admissions are those of one feature, the oldest first.
type admissions struct {
	at   []int64
	upTo []int64 // the cost of all, each and those before it
}

func newJudge(l limit) *judge { return &judge{limit: l, features: map[string]*admissions{}} }

// see judges a decision. Times do not go back.
func (j *judge) see(feature string, now, cost int64, admitted bool) {
	of := j.features[feature]
	if of == nil {
		of = &admissions{}
		j.features[feature] = of
	}
	held := of.after(now - j.window)
	if !admitted {
		j.verdict.denied++
		if held+cost <= j.n {
			j.verdict.wrongDenied++
		}
		return
	}
	j.verdict.admitted++
	held += cost
	if held > j.n {
		j.verdict.wrongAdmissions++
	}
	j.verdict.most = max(j.verdict.most, held)
	of.add(now, cost)
}

func (a *admissions) add(now, cost int64) {
	a.at = append(a.at, now)
	a.upTo = append(a.upTo, a.total()+cost)
}

func (a *admissions) total() int64 {
	if len(a.upTo) == 0 {
		return 0
	}
	return a.upTo[len(a.upTo)-1]
}

// after returns the cost of those that were later than the time.
func (a *admissions) after(time int64) int64 {
	first := sort.Search(len(a.at), func(i int) bool { return a.at[i] > time })
	if first == 0 {
		return a.total()
	}
	return a.total() - a.upTo[first-1]
}
