use super::*;

#[test]
fn zz() {
    for clients in [50, 100] {
        for strategy in Strategy::ALL {
            let s = Setting {
                clients,
                strategy,
                trials: 0,
            };
            let n: u32 = if cfg!(debug_assertions) { 20 } else { 1000 };
            let t0 = std::process::Command::new("date")
                .arg("+%s%N")
                .output()
                .unwrap()
                .stdout;
            let nums: Vec<u32> = (0..n).collect();
            let t = parallel::map(&nums, |k| s.trial(*k, 99).unwrap());
            let t1 = std::process::Command::new("date")
                .arg("+%s%N")
                .output()
                .unwrap()
                .stdout;
            let p = |t: Vec<u8>| String::from_utf8(t).unwrap().trim().parse::<f64>().unwrap();
            let stat = |f: &dyn Fn(&Trial) -> f64| {
                let m = t.iter().map(f).sum::<f64>() / f64::from(n);
                let v = t.iter().map(|x| (f(x) - m).powi(2)).sum::<f64>() / f64::from(n);
                (m, v.sqrt() / m)
            };
            println!(
                "{clients} {strategy:?} calls {:.1?} completion {:.3?} ms/trial {:.2}",
                stat(&|t| t.writes.len() as f64),
                stat(&|t| t.completion),
                (p(t1) - p(t0)) / 1e6 / f64::from(n)
            );
        }
    }
}
