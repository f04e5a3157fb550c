package compare

import "github.com/counterd/counterd/loadtest/exactlog"

// judge holds what one way of limiting admitted to an exact log of it.
type judge struct {
	limit
	features map[string]*exactlog.Log
	verdict  verdict
}

// verdict is how right a way of limiting was.
type verdict struct {
	admitted, denied             int64
	wrongAdmissions, wrongDenied int64
	most                         int64 // that any window held
}

func newJudge(l limit) *judge { return &judge{limit: l, features: map[string]*exactlog.Log{}} }

// see judges a decision. Times do not go back.
func (j *judge) see(feature string, now, cost int64, admitted bool) {
	log := j.features[feature]
	if log == nil {
		log = &exactlog.Log{}
		j.features[feature] = log
	}
	held := log.Sum(now-j.window+1, now) + cost
	switch {
	case !admitted:
		j.verdict.denied++
		if held <= j.n {
			j.verdict.wrongDenied++
		}
		return
	case held > j.n:
		j.verdict.wrongAdmissions++
	}
	j.verdict.admitted++
	j.verdict.most = max(j.verdict.most, held)
	log.Add(now, cost)
}
