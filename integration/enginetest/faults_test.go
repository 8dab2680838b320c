package enginetest

import "strings"

// saysWhatToDo waits for Run's error and checks that it names all of these.
func saysWhatToDo(w *world, m *member, words ...string) {
	w.Helper()
	err := m.ended()
	if err == nil {
		w.Fatal("Run returned without an error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			w.Errorf("the error does not say %q: %v", word, err)
		}
	}
	w.Logf("%v", err)
}
