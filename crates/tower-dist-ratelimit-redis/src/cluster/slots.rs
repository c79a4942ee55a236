use std::sync::Arc;

use redis::Value;

use crate::{connection::text, target::Address};

/// Number of slots in a Cluster.
pub(super) const SLOTS: usize = 16_384;

/// The primary of each slot.
#[derive(Debug, Default)]
pub(super) struct SlotOwners {
    /// One item per slot. Empty before the first successful query.
    owners: Vec<Option<Arc<Address>>>,
    /// Known nodes, including replicas.
    nodes: Vec<Address>,
}

impl SlotOwners {
    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        self.owners.get(usize::from(slot))?.as_deref()
    }

    pub(super) fn primaries(&self) -> Vec<&Address> {
        let nodes = self.nodes.iter();
        let has_slots =
            |node: &&Address| self.owners.iter().any(|one| one.as_deref() == Some(node));
        nodes.filter(has_slots).collect()
    }

    /// The number of slots that have an owner.
    pub(super) fn owned(&self) -> usize {
        self.owners.iter().flatten().count()
    }

    pub(super) fn nodes(&self) -> &[Address] {
        &self.nodes
    }

    /// Records that a slot has another owner.
    pub(super) fn set(&mut self, slot: u16, owner: &Address) {
        self.know(owner);
        if let Some(place) = self.owners.get_mut(usize::from(slot)) {
            *place = Some(Arc::new(owner.clone()));
        }
    }

    fn know(&mut self, node: &Address) {
        if !self.nodes.contains(node) {
            self.nodes.push(node.clone());
        }
    }
}

/// Parses the answer of the node `asked` to `CLUSTER SLOTS`. A node that is listed without a host gets the host of
/// `asked`.
pub(super) fn slots(answer: Value, asked: &Address) -> Option<SlotOwners> {
    let mut slots = SlotOwners {
        owners: vec![None; SLOTS],
        nodes: Vec::new(),
    };
    let Value::Array(ranges) = answer else {
        return None;
    };
    for range in ranges {
        let Value::Array(parts) = range else {
            return None;
        };
        let mut parts = parts.into_iter();
        let (first, last) = (number(parts.next()?)?, number(parts.next()?)?);
        let owner = node(parts.next()?, asked)?;
        slots.know(&owner);
        let range = slots
            .owners
            .get_mut(usize::from(first)..=usize::from(last))?;
        range.fill(Some(Arc::new(owner)));
        for replica in parts.filter_map(|part| node(part, asked)) {
            slots.know(&replica);
        }
    }
    (!slots.nodes.is_empty()).then_some(slots)
}

fn number(value: Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(number).ok(),
        _ => None,
    }
}

fn node(value: Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = value else {
        return None;
    };
    let mut parts = parts.into_iter();
    let host = text(parts.next()?).filter(|host| !host.is_empty() && host != "?");
    Some(Address {
        host: host.unwrap_or_else(|| asked.host.clone()),
        port: number(parts.next()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address {
            host: host.to_owned(),
            port,
        }
    }

    fn array(values: impl IntoIterator<Item = Value>) -> Value {
        Value::Array(values.into_iter().collect())
    }

    fn node(host: &str, port: i64) -> Value {
        array([
            Value::BulkString(host.as_bytes().to_vec()),
            Value::Int(port),
        ])
    }

    #[test]
    fn ranges_have_owners_and_replicas_are_known() {
        let answer = array([
            array([Value::Int(0), Value::Int(9), node("", 1), node("b", 2)]),
            array([Value::Int(10), Value::Int(16_383), node("b", 3)]),
        ]);
        let mut slots = slots(answer, &at("asked", 1)).unwrap();
        assert_eq!(slots.owner(9), Some(&at("asked", 1)));
        assert_eq!(slots.owner(10), Some(&at("b", 3)));
        assert_eq!(slots.nodes().len(), 3);
        slots.set(9, &at("b", 2));
        assert_eq!(slots.owner(9), Some(&at("b", 2)));
        assert_eq!(slots.owner(8), Some(&at("asked", 1)));
        assert_eq!((slots.primaries().len(), slots.nodes().len()), (3, 3));
    }

    #[test]
    fn a_replica_of_two_ranges_is_one_node_and_a_host_that_is_not_known_is_the_one_asked() {
        let answer = array([
            array([Value::Int(0), Value::Int(4), node("?", 1), node("b", 2)]),
            array([Value::Int(5), Value::Int(9), node("", 1), node("b", 2)]),
        ]);
        let slots = slots(answer, &at("asked", 1)).unwrap();
        let nodes: Vec<_> = slots.nodes().iter().collect();
        assert_eq!(nodes, [&at("asked", 1), &at("b", 2)]);
    }

    #[test]
    fn nonsense_is_no_map() {
        for answer in [
            Value::Nil,
            array([]),
            array([Value::Int(1)]),
            array([array([Value::Int(0), Value::Int(16_384), node("a", 1)])]),
            array([array([Value::Int(9), Value::Int(3), node("a", 1)])]),
            array([array([Value::Int(0), Value::Int(3), node("a", -1)])]),
        ] {
            assert!(slots(answer.clone(), &at("a", 1)).is_none(), "{answer:?}");
        }
    }
}
