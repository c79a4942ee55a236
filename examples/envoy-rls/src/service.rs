//! The decision: which limits hold for a request, and whether they have room for its hits.

use std::collections::HashMap;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tonic::Status;
use tower_dist_ratelimit::backend::BackendError;
use tower_dist_ratelimit::{Limiter, Quota, Source};

use crate::config::{Domains, Rule};
use crate::proto::{
    Code, Descriptor, DescriptorStatus, Entry, HeaderValue, LimitOverride, RateLimit,
    RateLimitRequest, RateLimitResponse,
};

/// Maximum number of concurrent decisions of one call. A remote backend decides them in few round trips, and a call
/// with many descriptors leaves room in the backend's queue for other calls.
const CONCURRENT_DECISIONS: usize = 64;

/// A limiter for each unit of time, by the number of the unit. Each decision brings the limit of its rule.
pub(crate) type Limiters = HashMap<i32, Limiter>;

/// The rate limits of all domains.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    pub(crate) domains: Domains,
    pub(crate) limiters: Limiters,
}

impl RateLimiter {
    /// Counts the hits of a request for each of its descriptors. The request exceeds the limit if any descriptor does;
    /// the other descriptors count its hits nevertheless.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT`, before anything is counted, for a request that the API does not allow. `UNAVAILABLE` if the
    /// backend fails and the service fails closed.
    pub(crate) async fn should_rate_limit(
        &self,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Status> {
        let RateLimitRequest {
            domain,
            descriptors,
            hits_addend,
        } = request;
        if domain.is_empty() {
            return Err(Status::invalid_argument("domain: must not be empty"));
        }
        if descriptors.is_empty() {
            return Err(Status::invalid_argument("descriptors: must not be empty"));
        }
        let rules = descriptors
            .iter()
            .map(|descriptor| self.rule(domain, descriptor));
        let rules: Vec<_> = rules.collect::<Result<_, _>>()?;
        let hits = u64::from(*hits_addend).max(1);
        let decisions = descriptors.iter().zip(&rules).map(|(descriptor, rule)| {
            let hits = descriptor.hits_addend.unwrap_or(hits);
            self.decide(domain, &descriptor.entries, rule.as_ref(), hits)
        });
        let decisions: Vec<_> = decisions.collect();
        let decisions = stream::iter(decisions).buffered(CONCURRENT_DECISIONS);
        let statuses: Vec<_> = decisions.try_collect().await?;
        let enforced = statuses.iter().zip(&rules);
        let enforced = enforced.filter(|(_, rule)| rule.as_ref().is_some_and(|rule| !rule.shadow));
        let response_headers_to_add = headers(enforced.map(|(status, _)| status));
        let over = statuses
            .iter()
            .any(|status| status.code() == Code::OverLimit);
        let overall_code = if over { Code::OverLimit } else { Code::Ok }.into();
        Ok(RateLimitResponse {
            overall_code,
            statuses,
            response_headers_to_add,
        })
    }

    /// Returns the rule of a descriptor: the descriptor's own limit, or else the rule in the configuration. `None` if
    /// the configuration has no such domain or rule.
    fn rule(&self, domain: &str, descriptor: &Descriptor) -> Result<Option<Rule>, Status> {
        let entries = &descriptor.entries;
        if entries.is_empty() || entries.iter().any(|entry| entry.key.is_empty()) {
            return Err(Status::invalid_argument(
                "descriptors: each needs entries, and each entry a key",
            ));
        }
        let Some(level) = self.domains.get(domain) else {
            return Ok(None);
        };
        let Some(limit) = descriptor.limit else {
            return Ok(level.find(entries).cloned());
        };
        let LimitOverride {
            requests_per_unit, ..
        } = limit;
        let (unit, name) = (limit.unit, "override".to_owned());
        if !self.limiters.contains_key(&limit.unit) {
            return Err(Status::invalid_argument("descriptors.limit.unit: unknown"));
        }
        let limit = Some(RateLimit {
            requests_per_unit,
            unit,
            name,
        });
        Ok(Some(Rule {
            limit,
            shadow: false,
        }))
    }

    /// Counts the hits of one descriptor.
    async fn decide(
        &self,
        domain: &str,
        entries: &[Entry],
        rule: Option<&Rule>,
        hits: u64,
    ) -> Result<DescriptorStatus, Status> {
        let ok = |limit_remaining| DescriptorStatus {
            code: Code::Ok.into(),
            limit_remaining,
            ..Default::default()
        };
        let Some(Rule { limit, shadow }) = rule else {
            return Ok(ok(0));
        };
        let Some(limit) = limit else {
            return Ok(ok(u32::MAX));
        };
        let Some(limiter) = self.limiters.get(&limit.unit) else {
            return Err(Status::invalid_argument("descriptors.limit.unit: unknown"));
        };
        let quota = Quota::new(limit.requests_per_unit.into(), limit.unit().window());
        let limiter = limiter.with_quota(quota);
        let key = key(domain, entries);
        let unavailable = |error: BackendError| Status::unavailable(error.to_string());
        let mut decision = limiter.check_n(&*key, hits).await.map_err(unavailable)?;
        if decision.source == Source::Allowed {
            return Ok(ok(0));
        }
        if !decision.allowed && decision.remaining > 0 {
            // Rejected hits count too: they use up the limit, as in envoyproxy/ratelimit. If the backend fails to count
            // them, the rejection stands.
            let _ = limiter.charge(&*key, decision.remaining).await;
            decision.remaining = 0;
        }
        // A check of zero hits is allowed unless the limit is zero. It exceeds the limit if no hits remain.
        let over = !decision.allowed || decision.remaining == 0 && hits == 0;
        let code = if over && !shadow {
            Code::OverLimit
        } else {
            Code::Ok
        };
        Ok(DescriptorStatus {
            code: code.into(),
            current_limit: Some(limit.clone()),
            limit_remaining: u32::try_from(decision.remaining).unwrap_or(u32::MAX),
            duration_until_reset: Some(decision.reset_after.into()),
        })
    }
}

/// Identifies the counter of a descriptor. The parts have lengths, so that no value imitates another descriptor.
fn key(domain: &str, entries: &[Entry]) -> Vec<u8> {
    let parts = entries
        .iter()
        .flat_map(|entry| [&*entry.key, &*entry.value]);
    let mut key = vec![];
    for part in std::iter::once(domain).chain(parts) {
        key.extend(part.len().to_le_bytes());
        key.extend(part.as_bytes());
    }
    key
}

/// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11, as the layers of the crate write
/// them, and `Retry-After` if a status exceeds its limit.
fn headers<'a>(statuses: impl Iterator<Item = &'a DescriptorStatus>) -> Vec<HeaderValue> {
    let (mut policies, mut states, mut retry_after) = (vec![], vec![], None);
    for status in statuses {
        let (Some(limit), Some(reset)) = (&status.current_limit, status.duration_until_reset)
        else {
            continue;
        };
        let (name, quota) = (&limit.name, limit.requests_per_unit);
        let window = limit.unit().window().as_secs();
        let (remaining, reset) = (status.limit_remaining, reset.whole_seconds());
        policies.push(format!("\"{name}\";q={quota};w={window}"));
        states.push(format!("\"{name}\";r={remaining};t={reset}"));
        if status.code() == Code::OverLimit {
            retry_after = retry_after.max(Some(reset));
        }
    }
    if policies.is_empty() {
        return vec![];
    }
    let header = |key: &str, value| HeaderValue {
        key: key.to_owned(),
        value,
    };
    let lists = [("ratelimit-policy", policies), ("ratelimit", states)];
    let lists = lists.map(|(key, members)| header(key, members.join(", ")));
    let retry_after = retry_after.map(|reset: i64| header("retry-after", reset.max(1).to_string()));
    lists.into_iter().chain(retry_after).collect()
}
