package storagetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
)

func mutants() []mutant {
	return slices.Concat(
		openMutants(), identityMutants(), insertMutants(), uniqueMutants(), orderMutants(), promoteMutants(),
		claimMutants(),
		recoverMutants(), settleMutants(), fenceMutants(), applyMutants(), changeMutants(), cancelMutants(),
		cursorMutants(), waitMutants(), readMutants(), statsMutants(), queueMutants(), jumpMutants(), togetherMutants(), toldMutants(), kindMutants(), whyMutants(),
		boundedMutants(), costMutants(), costKeptMutants(), partitionMutants(), partitionLineMutants(), partitionPauseMutants(), partitionReadMutants(),
		shareMutants(),
	)
}

func ruleNames() map[string]rule {
	byName := map[string]rule{}
	for _, ru := range rules() {
		byName[ru.name] = ru
	}
	return byName
}

// TestMutants: each mutant of the memory storage breaks rules of the contract, and the suite must
// fail and print these rules.
func TestMutants(t *testing.T) {
	t.Parallel()
	byName := ruleNames()
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			testserver.Parallel(t)
			for _, name := range m.rules {
				ru, ok := byName[name]
				if !ok {
					t.Fatalf("no rule %q", name)
				}
				failed, log := broken(t, ru, m.open)
				if !failed {
					t.Errorf("rule %q holds, want it broken", name)
				}
				if !strings.Contains(log, ru.says) || !strings.Contains(log, ru.name) {
					t.Errorf("rule %q prints %q, want its name and what it says", name, log)
				}
			}
		})
	}
}

// TestEveryRuleHasMutant: every rule can fail, since at least one mutant breaks it.
func TestEveryRuleHasMutant(t *testing.T) {
	t.Parallel()
	left := ruleNames()
	for _, m := range mutants() {
		for _, name := range m.rules {
			delete(left, name)
		}
	}
	for name := range left {
		t.Errorf("rule %q has no mutant", name)
	}
	t.Logf("%d rules, %d mutants", len(rules()), len(mutants()))
}

// TestNoMutant: all rules hold for a mutant that breaks nothing. So the failures above come from
// the mutants, and not from their wrapper.
func TestNoMutant(t *testing.T) {
	t.Parallel()
	harmless := breaks("nothing", fault{})
	for _, ru := range rules() {
		if failed, log := broken(t, ru, harmless.open); failed {
			t.Errorf("rule %q is broken, want it to hold:\n%s", ru.name, log)
		}
	}
}
