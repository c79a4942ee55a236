use tests::servers::Memcached as Server;
use tower_dist_ratelimit::{Policy, Quota};

use crate::support::{HOUR, Set, connect, until};

fn url(servers: &[&Server]) -> String {
    let hosts: Vec<String> = servers
        .iter()
        .map(|server| format!("127.0.0.1:{}", server.port()))
        .collect();
    format!("memcached://{}", hosts.join(","))
}

#[tokio::test]
async fn keys_are_spread_over_servers_the_same_from_everywhere() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let [a, b, c] = &servers;
    let policy = || {
        [
            Policy::new("bucket", Quota::new(5, HOUR)),
            Policy::new("first", Quota::new(5, HOUR)).fixed_window_from_first_request(),
        ]
    };
    let one = Set::new(&connect(&url(&[a, b, c])).await, &policy());
    let other = Set::new(&connect(&url(&[c, a, b])).await, &policy());
    for number in 0..60 {
        let key = number.to_string();
        assert_eq!(one.take(&key, 1).await.unwrap().remaining, 4);
        assert_eq!(other.take(&key, 1).await.unwrap().remaining, 3);
    }
    let shares: Vec<usize> = servers.iter().map(|server| server.keys().len()).collect();
    assert_eq!(shares.iter().sum::<usize>(), 60);
    assert!(shares.iter().all(|&share| share > 5), "{shares:?}");
}

#[tokio::test]
async fn a_server_that_is_down_fails_only_its_own_keys() {
    let (mut gone, stays) = (Server::start(), Server::start());
    let set = Set::new(
        &connect(&url(&[&gone, &stays])).await,
        &[Policy::new("bucket", Quota::new(5, HOUR))],
    );
    for number in 0..20 {
        set.take(&number.to_string(), 1).await.unwrap();
    }
    let (ours, others) = (gone.keys().len(), stays.keys().len());
    assert!(ours > 0 && others > 0);
    gone.kill();
    until("the connection to be given up", || async {
        let mut failed = 0;
        for number in 0..20 {
            failed += usize::from(set.take(&number.to_string(), 0).await.is_err());
        }
        (failed == ours).then_some(())
    })
    .await;
    gone.restart();
    until("decisions to resume", || async {
        for number in 0..20 {
            set.take(&number.to_string(), 0).await.ok()?;
        }
        Some(())
    })
    .await;
}
