// SPDX-License-Identifier: Apache-2.0
//! Nodes: one process reads what another one computed. Here both are this one.

mod common;

use common::*;
use pagedkv::*;
use std::time::Duration;

fn options<'a>() -> NodeOptions<'a> {
    NodeOptions { cluster_key: vec![7; 32], provider: Some("tcp".into()), timeout: LONG, ..Default::default() }
}

/// None where the plug-in is missing.
fn listening(tier: &Tier, copy: bool) -> Option<Node> {
    let (listen, name) = (Some("127.0.0.1:0".into()), Some("server".into()));
    let options = NodeOptions { listen, tiers: vec![tier], name, copy, ..options() };
    match Node::open(&options) {
        Err(error) if error.status() == Status::Unsupported => {
            println!("SKIP  no nodes: {}", error);
            None
        }
        other => Some(other.unwrap()),
    }
}

#[test]
fn a_node_reads_what_another_one_has() {
    reads_from(false);
}

#[test]
fn a_node_reads_copies_of_what_another_one_has() {
    reads_from(true);
}

fn reads_from(copy: bool) {
    let prompt = tokens(1, 32);
    let tier = host_tier(1 << 20);
    let server = match listening(&tier, copy) {
        Some(server) => server,
        None => return,
    };
    let there = pool_over(8, vec![TierAttachment { policy: WritePolicy::WriteThrough, ..attached(&tier) }]);
    drop(computed(&there, &prompt));
    there.flush(LONG).unwrap();

    let node = Node::open(&options()).unwrap();
    let address = server.address().unwrap();
    assert_eq!(status(node.address()), Status::State);
    node.connect(&address, LONG).unwrap();
    assert_eq!(status(node.connect(&address, LONG)), Status::State);
    let peers = node.peers().unwrap();
    assert_eq!((peers.len(), &peers[0].address, &peers[0].name[..], peers[0].connected), (1, &address, "server", true));
    let remote = node.tier().unwrap();
    let here = pool_over(8, vec![TierAttachment { timeout: LONG, ..TierAttachment::read_only(&remote) }]);
    let mut table = here.table().unwrap();
    let found =
        table.admit(&Prompt::new(&prompt), &AdmitOptions { max_match: MATCH_ALL, ..Default::default() }).unwrap();
    assert_eq!((found.tokens, found.tier_tokens[0]), (32, 32));
    assert_eq!(table.restore(0..u64::MAX, LONG).unwrap(), 2);
    verify(&mut table, &prompt, 32);
    let stats = node.stats().unwrap();
    assert_eq!((&stats.provider[..3], stats.connected_peers), ("tcp", 1));
    assert!(stats.bytes_read > 0);
    // Those that are copied for it count as served.
    assert_eq!(server.stats().unwrap().bytes_served > 0, copy);
    let text = Prometheus::new().node("reader", &node).node("server", &server).render().unwrap();
    assert!(text.contains("node=\"reader\"") && text.contains("node=\"server\""), "{}", text);
    node.disconnect(&address).unwrap();
    assert_eq!(status(node.disconnect(&address)), Status::NotFound);
    node.close().unwrap();
}

#[test]
fn nodes_of_another_cluster_are_refused() {
    let tier = host_tier(1 << 20);
    let server = match listening(&tier, false) {
        Some(server) => server,
        None => return,
    };
    let stranger = Node::open(&NodeOptions { cluster_key: vec![8; 32], ..options() }).unwrap();
    assert_eq!(status(stranger.connect(&server.address().unwrap(), LONG)), Status::Mismatch);
    assert_eq!(stranger.peers().unwrap(), []);
    assert_eq!(status(stranger.connect("a\0b", Duration::ZERO)), Status::Invalid);
}

#[test]
fn keys_that_are_too_short_are_refused_and_not_shown() {
    let options = NodeOptions { cluster_key: vec![0xab; 31], ..options() };
    assert!(matches!(status(Node::open(&options)), Status::Invalid | Status::Unsupported));
    assert!(!format!("{:?}", options).contains("171"));
}

#[test]
fn a_sequence_is_handed_over() {
    let tier = host_tier(1 << 20);
    let server = match listening(&tier, false) {
        Some(server) => server,
        None => return,
    };
    let (there, here) = (pool(8), pool(16));
    let mut prompt = tokens(1, 40);
    let mut table = computed(&there, &prompt);
    prompt.push(7);
    table.reserve(41).unwrap();
    table.set_tokens(40, &prompt[40..]).unwrap();
    let offered = OfferOptions { num_tokens: 41, ..Default::default() };
    let queue = Queue::new().unwrap();
    let reported = OpOptions { queue: Some(&queue), user: 3, ..Default::default() };
    let (offer, _op) = server.offer_reported(&mut table, &offered, &reported).unwrap();
    let ticket = offer.ticket().unwrap();
    let info = offer.info().unwrap();
    assert_eq!((info.status, info.num_tokens, info.ready_tokens), (Err(Status::Busy), 41, 40));

    let node = Node::open(&options()).unwrap();
    let pull = node.pull(&here, &[&ticket], &PullOptions::default(), &OpOptions::default()).unwrap();
    assert_eq!(pull.poll().unwrap().num_items, u64::from(LAYERS));
    assert_eq!(status(pull.table()), Status::Busy);
    let mut other = there.table().unwrap();
    assert_eq!(status(offer.ready(&mut other, None, 41, NOW)), Status::Invalid);
    // The last row is written while the others are on their way.
    for layer in 0..LAYERS {
        let (k, v) = (rows(&prompt, 40, 41, layer, 0), rows(&prompt, 40, 41, layer, 1));
        table.write(0, layer, 40..41, Rows::of(&k), Some(Rows::of(&v)), NOW).unwrap();
        offer.ready(&mut table, Some((0, layer)), 41, NOW).unwrap();
    }
    pull.wait(LONG).unwrap();
    let mut pulled = pull.table().unwrap();
    assert_eq!(status(pull.table()), Status::State);
    verify(&mut pulled, &prompt, 41);
    assert_eq!(queue.drain(4, LONG).unwrap()[0].user, 3);
    assert_eq!(offer.info().unwrap().status, Ok(()));

    // Once is what was offered.
    let again = node.pull(&here, &[&ticket], &PullOptions::default(), &OpOptions::default()).unwrap();
    assert_eq!(status(again.wait(LONG)), Status::NotFound);
    assert_eq!(status(again.table()), Status::NotFound);
    let plain = |tickets: &[&[u8]], options: PullOptions<'_>| {
        status(node.pull(&here, tickets, &options, &OpOptions::default()))
    };
    assert_eq!(plain(&[b"no ticket"], PullOptions::default()), Status::Invalid);
    assert_eq!(plain(&[], PullOptions::default()), Status::Invalid);
    assert_eq!(plain(&[&ticket], PullOptions { groups: vec![0, 1], ..Default::default() }), Status::Invalid);
    assert_eq!(status(node.offer(&mut pulled, &OfferOptions::default())), Status::State);
    drop(
        server.offer(&mut table, &OfferOptions { lifetime: LONG, max_pulls: u32::MAX, ..Default::default() }).unwrap(),
    );
    drop((table, other, pulled, offer));
    assert_nothing_held(&there);
    assert_nothing_held(&here);
}

#[test]
fn a_directory_that_is_not_there_costs_hits_only() {
    let options = NodeOptions {
        directory: Some("redis://user:secret@127.0.0.1:1".into()),
        heartbeat: Duration::from_secs(1),
        entry_ttl: Duration::from_secs(60),
        ..options()
    };
    assert!(!format!("{:?}", options).contains("secret"));
    match Node::open(&options) {
        Err(error) if error.status() == Status::Unsupported => println!("SKIP  no directories: {}", error),
        other => assert_eq!(other.unwrap().stats().unwrap().directory_endpoints_up, 0),
    }
    let wrong = NodeOptions { directory: Some("http://x".into()), ..options };
    assert!(matches!(status(Node::open(&wrong)), Status::Invalid | Status::Unsupported));
}
