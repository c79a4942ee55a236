use tower::retry::budget::Budget as TowerBudget;

use super::Budget;

/// Replaces tower's `TpsBudget`. That budget rounds its ratio coarsely (0.6 becomes 1), and concurrent threads can
/// overdraw it.
impl TowerBudget for Budget {
    fn deposit(&self) {
        self.deposit();
    }

    /// Also records a failure, because a policy usually calls this method after a failed attempt.
    fn withdraw(&self) -> bool {
        self.record_failure();
        let permit = self.withdraw();
        permit.map(super::Permit::spend).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tower_spends_each_token_that_it_withdraws() {
        let budget = Budget::ratio(1.0).burst(1);
        let tower: &dyn TowerBudget = &budget;
        assert!(tower.withdraw());
        assert!(!tower.withdraw());
        tower.deposit();
        assert!(tower.withdraw());
    }

    #[test]
    fn a_throttle_counts_the_failures_of_tower() {
        let budget = Budget::grpc_throttle(4, 1.0);
        let tower: &dyn TowerBudget = &budget;
        assert!(tower.withdraw(), "3 is above 2");
        assert!(!tower.withdraw(), "2 is not");
        tower.deposit();
        assert!(budget.withdraw().is_some());
    }
}
