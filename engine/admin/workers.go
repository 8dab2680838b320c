package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gaplesshq/gapless/engine"
)

// setWorkers changes the limits as the form says. Nothing is changed where any of it is wrong.
func setWorkers(e *engine.Engine, r *http.Request) error {
	total, err := whole(r, "total", "a whole number of at least 1, or auto", 0)
	if err != nil {
		return err
	}
	per, err := whole(r, "per_partition", "a whole number; 0 = as many as the total", 0)
	if err != nil {
		return err
	}
	least, err := whole(r, "min", "a whole number of at least 1", 1)
	if err != nil {
		return err
	}
	most, err := whole(r, "max", "a whole number of at least 1", 1)
	if err != nil {
		return err
	}
	switch {
	case total == engine.Auto:
	case total == 0 && r.Form.Has("total"), total == 0 && least == 0 && most == 0:
		return errors.New("total: give a whole number of at least 1, or auto")
	case total > 0 && (least > 0 || most > 0):
		return errors.New("min and max are for total=auto")
	}
	if least > 0 || most > 0 {
		if err := e.SetWorkerBounds(least, most); err != nil {
			return err
		}
	}
	if total == 0 {
		return nil
	}
	if !r.Form.Has("per_partition") { // it stays as it is
		switch now := e.Status().Workers; {
		case now.Auto != nil:
			per = now.Auto.PerPartition
		case total != engine.Auto || now.LimitPerPartition < now.Limit:
			per = now.LimitPerPartition
		}
		if total != engine.Auto {
			per = min(per, total)
		}
	}
	return e.SetWorkers(total, per)
}

// whole reads a whole number of the form; 0 = it is not there. For the total, auto is one.
func whole(r *http.Request, name, want string, least int) (int, error) {
	s := r.FormValue(name)
	switch {
	case s == "":
		return 0, nil
	case s == "auto" && name == "total":
		return engine.Auto, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least {
		return 0, fmt.Errorf("%s: give %s", name, want)
	}
	return n, nil
}
