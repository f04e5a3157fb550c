// Package ledger decides which servers hold all counts. Nothing uses it yet: package replica will, in place of its
// losses and markers.
//
// Each server has one item, its marker. For each slot of counters the marker contains a number, the Unix second since
// when the server is complete: a count whose window begins earlier may be too low. Each cause of doubt raises the
// number to now. Only a copy from a replica with a lower number lowers it.
//
// Begin with [Marker]. [List] places slots on servers. [Ledger] is the state of one process: its conclusions from the
// markers that it has read, with a table of the rules. The package makes no input and output, and time is an argument.
// The simulation in its tests reads markers, delivers hints and copies items, and holds the promises P1 to P6.
//
// The promises hold under these conditions:
//
//	C1  Clocks agree within 0.5 s. A process with another clock marks all of its decisions, and looks at no server alone:
//	    its numbers would be too early, and rule 2 needs a process that has looked before.
//	C2  Two faults, of a server or of a process with debts, are at least 2.5 s apart: two looks. Not all servers lose
//	    their memory while no process runs.
//	C3  While one process cannot reach a replica of a counter, no other process misses another replica of it.
//	C4  No undo arrives later than 2.5 timeouts after its add was sent.
package ledger
