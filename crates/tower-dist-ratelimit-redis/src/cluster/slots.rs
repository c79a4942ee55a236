use redis::Value;

use crate::target::Address;

/// How many there are in a Cluster.
const SLOTS: u16 = 16_384;

/// Of a slot that no node has.
const NOBODY: u16 = u16::MAX;

/// Which primary has which slot.
#[derive(Debug)]
pub(super) struct Slots {
    /// By number: those that have slots, then other nodes.
    nodes: Vec<Address>,
    primaries: usize,
    owners: Box<[u16]>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            primaries: 0,
            owners: vec![NOBODY; usize::from(SLOTS)].into(),
        }
    }
}

impl Slots {
    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        let owner = self.owners.get(usize::from(slot))?;
        self.nodes.get(usize::from(*owner))
    }

    pub(super) fn primaries(&self) -> impl Iterator<Item = &Address> {
        self.nodes[..self.primaries].iter()
    }

    /// All that are known, replicas too.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Address> + Clone {
        self.nodes.iter()
    }

    /// Notes that a slot has another owner.
    pub(super) fn set(&mut self, slot: u16, owner: &Address) {
        let number = self.primary(owner);
        if let Some(place) = self.owners.get_mut(usize::from(slot)) {
            *place = number;
        }
    }

    fn primary(&mut self, address: &Address) -> u16 {
        let known = self.nodes[..self.primaries]
            .iter()
            .position(|node| node == address);
        let number = known.unwrap_or_else(|| {
            // Only while there are no others but primaries, or one of those: the numbers of primaries stay.
            self.nodes.retain(|node| node != address);
            self.nodes.insert(self.primaries, address.clone());
            self.primaries += 1;
            self.primaries - 1
        });
        u16::try_from(number).unwrap_or(NOBODY)
    }
}

/// Reads an answer to `CLUSTER SLOTS` from a node. A node that does not know its own host means the one it was asked at.
pub(super) fn slots(answer: Value, asked: &Address) -> Option<Slots> {
    let mut slots = Slots::default();
    let mut replicas = Vec::new();
    let Value::Array(ranges) = answer else {
        return None;
    };
    for range in ranges {
        let Value::Array(parts) = range else {
            return None;
        };
        let mut parts = parts.into_iter();
        let (first, last) = (number(parts.next()?)?, number(parts.next()?)?);
        let owner = slots.primary(&node(parts.next()?, asked)?);
        slots
            .owners
            .get_mut(usize::from(first)..=usize::from(last))?
            .fill(owner);
        replicas.extend(parts.filter_map(|part| node(part, asked)));
    }
    for replica in replicas {
        if !slots.nodes.contains(&replica) {
            slots.nodes.push(replica);
        }
    }
    (slots.primaries > 0).then_some(slots)
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
    let host: Option<String> = redis::from_redis_value(parts.next()?).ok()?;
    let host = host.filter(|host| !host.is_empty() && host != "?");
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
        assert_eq!(slots.nodes().count(), 3);
        slots.set(9, &at("b", 2));
        assert_eq!(slots.owner(9), Some(&at("b", 2)));
        assert_eq!(slots.owner(8), Some(&at("asked", 1)));
        assert_eq!((slots.primaries().count(), slots.nodes().count()), (3, 3));
    }

    #[test]
    fn a_replica_of_two_ranges_is_one_node_and_a_host_that_is_not_known_is_the_one_asked() {
        let answer = array([
            array([Value::Int(0), Value::Int(4), node("?", 1), node("b", 2)]),
            array([Value::Int(5), Value::Int(9), node("", 1), node("b", 2)]),
        ]);
        let slots = slots(answer, &at("asked", 1)).unwrap();
        let nodes: Vec<_> = slots.nodes().collect();
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
