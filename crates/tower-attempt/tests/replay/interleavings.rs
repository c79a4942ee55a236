//! Random interleavings against the model.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::run::{Act, Run};
use crate::script::{Manners, Step};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_usize..300).prop_map(Step::Data),
        2 => Just(Step::Data(0)),
        1 => Just(Step::Trailers),
        3 => Just(Step::WakeInline),
        4 => Just(Step::Wait),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let error = prop_oneof![3 => Just(false), 1 => Just(true)];
    (vec(step(), 0..16), error).prop_map(|(mut steps, error)| {
        steps.extend(error.then_some(Step::Error));
        steps
    })
}

fn act() -> impl Strategy<Value = Act> {
    let reader = 0_usize..4;
    prop_oneof![
        30 => (reader.clone(), any::<bool>())
            .prop_map(|(reader, fresh_waker)| Act::Poll { reader, fresh_waker }),
        6 => any::<bool>().prop_map(|retry| Act::Join { retry }),
        6 => prop_oneof![9 => Just(false), 1 => Just(true)].prop_map(|thread| Act::Fire { thread }),
        2 => Just(Act::Ripen),
        1 => Just(Act::DropSaved),
        1 => reader.clone().prop_map(|reader| Act::Drop { reader }),
        1 => reader.prop_map(|reader| Act::Stall { reader }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_reader_sees_what_the_model_sees(
        steps in steps(),
        knows_size: bool,
        knows_end: bool,
        limit in prop_oneof![Just(usize::MAX), 0_usize..3_000],
        acts in vec(act(), 0..100),
        saved_goes_first: bool,
    ) {
        let manners = Manners { knows_size, knows_end };
        let mut run = Run::new(steps, manners, limit);
        acts.iter().for_each(|act| run.act(act));
        run.end(saved_goes_first);
    }
}
