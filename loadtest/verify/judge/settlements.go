package judge

// settled takes into account that a hit that reserved its cost was settled, if it was. It returns what the hit
// took further, and what it surely gave back: it may have given back less, and at once. A large log reserves
// nothing.
func (c *counter) settled(e Entry, i int32, a *add, large bool) (further, back add) {
	r := c.Log.releases[i]
	if !r.Reserved || c.Rule.Leases || e.Outcome != Admitted {
		return add{}, add{}
	}
	clean := c.Replicas == 1 || c.givenUp[i] == 0 && r.took() < c.Timeout/4 && !c.losses.alone(Entry{Call: r.Call}, c.Timeout)
	change := add{Call: e.Call, Times: a.Times, known: r.Answered}
	if change.most = int64(r.Cost) - int64(e.Cost); change.most > 0 {
		change.Answered = r.Answered
		if r.Done && clean && !large && a.least == a.most {
			change.least, change.told = change.most, change.most
		}
		if !clean { // a replica that was away may get it twice
			change.most *= 2
		}
		return change, add{}
	}
	change.most *= -1
	during := Call{Sent: e.Sent, Answered: r.Answered}
	if r.Done && clean && !large && a.least == a.most && !c.resets.beside(during) { // else it is of another epoch, and stays
		back, back.least = change, change.most
	}
	a.least = min(a.least, int64(r.Cost))
	if !c.Rule.Log && (c.resets.beside(during) || c.losses.disturbed(during.Sent, during.Answered)) {
		change.known = r.Sent
		c.strays = append(c.strays, change)
	}
	return add{}, back
}

// strayed returns how much hits may have given back of what others have taken by then: their own was lost or
// forgotten before they were settled.
func (c *counter) strayed(answered int64) (most int64) {
	for _, a := range c.strays {
		if a.known < answered {
			most += a.most
		}
	}
	return most
}

// taken returns what an admitted hit takes of the limit at the least.
func (l *limitEval) taken(i int32) int64 {
	cost := int64(l.entry(i).Cost)
	if r := l.Log.releases[i]; r.Reserved && !l.Rule.Leases {
		return min(cost, int64(r.Cost))
	}
	return cost
}
