package ledger

import (
	"testing"

	"github.com/counterd/counterd/internal/testkit/mutant"
)

// What each rule is for: without it the simulation finds a broken promise.
func TestSimulationsFindMutants(t *testing.T) {
	mutant.Test(t, []mutant.Mutant{
		{
			Name: "a bad item is no matter", File: "ledger.go", Test: "TestOverlappingFaultsAreMarked", Seed: 3,
			Old: "l.view(server).spoiled.Add(slot) }",
			New: "}",
		},
		{
			Name: "old looks are good", File: "ledger.go", Test: "TestDebtsAreInherited", Seed: 16,
			Old: " || !v.believed || now.Sub(v.looked) > fresh {",
			New: " {",
		},
		{
			Name: "debts are not read", File: "ledger.go", Test: "TestDebtsAreInherited",
			Old: "\tif l.list.replicas < 2 {\n\t\treturn false\n\t}\n\tfor d, v",
			New: "\tif l.list.replicas < 9 {\n\t\treturn false\n\t}\n\tfor d, v",
		},
		{
			Name: "unread markers are no matter", File: "ledger.go", Test: "TestDebtsAreInherited", Seed: 31,
			Old: "\treturn !l.vouched(server)",
			New: "\treturn false",
		},
		{
			Name: "a server without a marker is new", File: "ledger.go", Test: "TestDebtsAreInherited",
			Old: "\tif !known {",
			New: "\tif !known && now.IsZero() {",
		},
		{
			Name: "a paid debt is forgotten at once", File: "ledger.go", Test: "TestDebtsAreInherited", Seed: 199,
			Old: "\t\t\t\tw.payments++\n\t\t\t\tw.believed = false\n",
			New: "\t\t\t\tw.payments += 0\n",
		},
		{
			Name: "evictions are not noted", File: "ledger.go", Test: "TestOneFaultAtATimeLosesNothing",
			Old: "if evictions > m.Evictions && m.Evictions >= 0 {",
			New: "if evictions < 0 {",
		},
		{
			Name: "debts end by themselves", File: "ledger.go", Test: "TestDebtsAreInherited",
			Old: "v > m.Raised && v < second {",
			New: "v > m.Raised && v < 0 {",
		},
		{
			Name: "lists change unsaid", File: "marker.go", Test: "TestCopiesDuringChangesMissNothing",
			Old: "\tm.assign(now+Margin, placed.minus(before.Slots(server)))\n",
			New: "\t_ = before\n",
		},
		{
			Name: "a process writes its own debts alone", File: "ledger.go", Test: "TestDebtsAreInherited", Seed: 17,
			Old: "\t\tm.Debts = maps.Clone(l.debts)\n",
			New: "\t\tfor d, v := range l.debts {\n\t\t\tif d.Process == l.process || m.Debts[d] != 0 {\n\t\t\t\tif m.Debts == nil {\n\t\t\t\t\tm.Debts = Debts{}\n\t\t\t\t}\n\t\t\t\tm.Debts[d] = v\n\t\t\t}\n\t\t}\n",
		},
		{
			Name: "copies to and from servers with debts", File: "ledger.go", Test: "TestCopiesDuringChangesMissNothing", Seed: 3,
			Old: " && !l.owed(server, now)\n}",
			New: " && now.Unix() > 0\n}",
		},
		{
			Name: "sources are complete", File: "plan.go", Test: "TestOverlappingFaultsAreMarked", Seed: 1,
			Old: "\tfor _, n := range c.source.numbers(&slots) {\n\t\tm.lower(n.Second, n.Slots)",
			New: "\tfor _, n := range c.source.numbers(&slots) {\n\t\tm.lower(0, n.Slots)",
		},
		{
			Name: "adds to the coarsest level first", File: "process_test.go", Test: "TestCopiesOfBusyCountersMissNothing", Seed: 69,
			Old: "\t\tadds = append(adds, add{keyOf(counter, level, second), by})\n",
			New: "\t\tadds = slices.Insert(adds, 0, add{keyOf(counter, level, second), by})\n",
		},
		{
			Name: "a replica that lost counts decides", File: "trip_test.go", Test: "TestCopiesOfBusyCountersMissNothing", Seed: 4,
			Old: "if len(answered) > 0 && (complete || !inVain) {",
			New: "if len(answered) > 0 && (complete || !inVain || true) {",
		},
		{
			Name: "replicas that are up vouch without an answer", File: "trip_test.go", Test: "TestOverlappingFaultsAreMarked", Seed: 9,
			Old: "\t\tx.since = p.led.Since(answered, p.w.slots",
			New: "\t\tfor _, q := range x.parts {\n\t\t\tif l := p.links[q.server]; l != nil && l.up && !slices.Contains(answered, q.server) {\n\t\t\t\tanswered = append(answered, q.server)\n\t\t\t}\n\t\t}\n\t\tx.since = p.led.Since(answered, p.w.slots",
		},
		{
			Name: "debts are recorded later", File: "look_test.go", Test: "TestDebtsAreInherited", Seed: 22,
			Old: "\tfor _, s := range missed {\n",
			New: "\tfor _, s := range missed[:0] {\n",
		},
		{
			Name: "no hints", File: "hints_test.go", Test: "TestOneFaultAtATimeLosesNothing", Seed: 4,
			Old: "\tif !p.led.isServer(server) || p.led.IsLosing(server) {",
			New: "\tif true || !p.led.isServer(server) || p.led.IsLosing(server) {",
		},
		{
			Name: "hints are dropped unsaid", File: "hints_test.go", Test: "TestDebtsAreInherited", Seed: 2,
			Old: "\t\t\tp.led.Lose(server, \"missed\")\n",
			New: "",
		},
		{
			Name: "numbers may change under a copy", File: "plan.go", Test: "TestOverlappingFaultsAreMarked", Seed: 38,
			Old: "\tslots = slots.intersect(&c.Slots)\n\tsame := from.same(c.source)\n\treturn slots.intersect(&same)",
			New: "\t_ = slots.intersect(&c.Slots)\n\treturn c.Slots",
		},
		{
			Name: "no look at the source after a copy", File: "copy_test.go", Test: "TestOverlappingFaultsAreMarked", Seed: 306,
			Old: "\treturn ok && c.p.lookAt(c.t, c.Source) == nil && c.lower()",
			New: "\treturn ok && c.lower()",
		},
		{
			Name: "copies from servers with debts", File: "copy_test.go", Test: "TestCopiesDuringChangesMissNothing", Seed: 7,
			Old: "\tif !c.p.led.IsSteady(c.Source, c.p.time()) {",
			New: "\tif false {",
		},
		{
			Name: "not quiet", File: "copy_test.go", Test: "TestCopiesOfBusyCountersMissNothing", Seed: 8,
			Old: "\t\tcase !stayed:",
			New: "\t\tcase !stayed && i < 0:",
		},
		{
			Name: "a plain set", File: "network_test.go", Test: "TestCopiesOfBusyCountersMissNothing", Seed: 5,
			Old: "if x := &list[i]; s.get(x.k).version == x.version {",
			New: "if x := &list[i]; x != nil {",
		},
		{
			Name: "a sum of any children", File: "copy_test.go", Test: "TestCopiesOfBusyCountersMissNothing", Seed: 40,
			Old: "\tif sum < source[0].value {",
			New: "\tif sum < min(source[0].value, 0) {",
		},
		{
			Name: "no look at the marker first", File: "network_test.go", Test: "TestOverlappingFaultsAreMarked", Seed: 46,
			Old: "\terr := p.look(t, connection{t, l, boot}, l.s.name)\n",
			New: "\terr := connection{t, l, boot}.send(func(*server) {})\n",
		},
		{
			Name: "children are read first", File: "copy_test.go", Test: "TestCopiesOfBusyCountersMissNothing", Seed: 285,
			Old: "\terr = c.send(commands...)\n\treturn parent, children, err",
			New: "\terr = c.send(append(commands[1:], commands[0])...)\n\treturn parent, children, err",
		},
		{
			Name: "an item that seems high enough may have changed", File: "copy_test.go", Test: "TestCopiesOfBusyCountersMissNothing", Seed: 193,
			Old: "\twrite := []swapping{{k: k, value: max(sum",
			New: "\tif before.value >= sum {\n\t\treturn true, true\n\t}\n\twrite := []swapping{{k: k, value: max(sum",
		},
	})
}
