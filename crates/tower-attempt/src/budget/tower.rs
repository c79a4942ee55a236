use tower::retry::budget::Budget as TowerBudget;

use super::Budget;

/// In the place of tower's `TpsBudget`, whose ratio is rounded and which threads overdraw.
impl TowerBudget for Budget {
    fn deposit(&self) {
        self.deposit();
    }

    fn withdraw(&self) -> bool {
        let permit = self.withdraw();
        permit.map(super::Permit::spend).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tower_spends_what_it_withdraws() {
        let budget = Budget::ratio(1.0).burst(1);
        let tower: &dyn TowerBudget = &budget;
        assert!(tower.withdraw());
        assert!(!tower.withdraw());
        tower.deposit();
        assert!(tower.withdraw());
    }
}
