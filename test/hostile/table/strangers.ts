/** Attacks on the broker by strangers, and floods by strangers and members. */
import type { AttackRow } from './row.ts'

export const STRANGERS: readonly AttackRow[] = [
  {
    id: 'join-too-large',
    tried: 'A stranger announces a Join of 4 MiB.',
    holds: 'It is refused with RESOURCE_EXHAUSTED before its body has come.',
    against: '`protocol/transport/grpc-server.ts`: a stranger is handed to a server that takes 64 KiB.',
  },
  {
    id: 'join-gzip-bomb',
    tried: 'A stranger sends a Join of 40 KB that unpacks to 40 MB.',
    holds: 'It is refused with RESOURCE_EXHAUSTED at 64 KiB.',
    against: '`protocol/transport/grpc-server.ts`: the bound is that of what is unpacked.',
  },
  {
    id: 'join-many-calls',
    tried: 'A stranger makes ten calls over one connection.',
    holds: 'Four are answered, then the connection is closed.',
    against: '`protocol/transport/hosted-clusterset.ts`: what one connection may open.',
  },
  {
    id: 'join-strangers-of-one-address',
    tried: 'A hundred strangers of one address hold connections open.',
    holds:
      '64 have places and the oldest give way; a cluster with a good token joins from the same address, and a member goes on.',
    against: '`protocol/transport/connections.ts`: the caller that holds most connections loses its oldest.',
  },
  {
    id: 'join-failed-by-address',
    tried: 'Forty joins of one address show a token that nobody made.',
    holds: 'Twenty hear UNAUTHENTICATED, the others RESOURCE_EXHAUSTED; a good token passes from the same address.',
    against: '`broker/members/join-tokens.ts`: failures are counted by address, and a known token passes.',
  },
  {
    id: 'waiting-unknown-tokens',
    tried: 'Where an operator approves joins, a stranger asks with 25 tokens that nobody made.',
    holds: 'None of them is shown to the operator; one with a good token is.',
    against: '`broker/members/join-tokens.ts`: the token is looked at before anything else is.',
  },
  {
    id: 'waiting-flood-of-a-token',
    tried: 'Somebody with a token of 1,000 uses asks as 62 clusters, each with a key of its own.',
    holds: 'At most 32 of them wait, and a cluster with another token finds room.',
    against: '`broker/members/waiting-joins.ts`: 32 rows of a token, 128 of all; each key counts by itself.',
  },
  {
    id: 'waiting-stolen-token',
    tried: 'While a cluster waits for approval, and afterwards, a thief uses its token with another key.',
    holds: 'The thief neither joins nor takes the request back; the cluster joins, and the token is spent.',
    against: '`broker/members/join-tokens.ts` and `broker/approval/`: a waiting request holds its token for one key.',
  },
  {
    id: 'waiting-forged',
    tried: 'A holder of a token asks with 65 labels, a release of 80 KB, terminal escapes and invalid ids.',
    holds: 'Each is refused, nothing of it is shown to the operator, and the token is still good.',
    against: '`broker/records/admission-facts.ts`: facts are checked before they are shown.',
  },
  {
    id: 'waiting-acts-as-member',
    tried: 'A cluster that waits renews, leaves and watches, and asks as the last release did.',
    holds: 'Each is refused, and the clusterset has no member.',
    against: '`broker/members/approval.ts`: nothing is signed before an operator has accepted.',
  },
  {
    id: 'waiting-ranges-after-the-join',
    tried: 'An approved member with a small range later states the pods of another, in five ways.',
    holds:
      'Each waits or is refused with RangesAwaitApproval, nobody is renumbered, and the operator sees whom it would hit.',
    against:
      '`broker/addresses/changed-ranges.ts`: ranges that are stated later wait, and the accepted ones stay in force.',
  },
  {
    id: 'audit-forged-lines',
    tried: 'Strangers and token holders use names with newlines, JSON, terminal escapes, 60,000 letters.',
    holds: 'Each line of the audit log is one whole line of ASCII below 4 KiB, and says what happened.',
    against: '`broker/audit/audit-line.ts`: texts are cut and escaped, and the line has a bound.',
  },
  {
    id: 'audit-flooded',
    tried: 'A stranger is refused 60 times, and a member with 300 records.',
    holds: 'Each has about ten lines in the audit log, the rest is counted, and a join meanwhile has its line.',
    against: '`broker/audit/refusal-rate-limiter.ts`: how many lines a source can cause.',
  },
  {
    id: 'audit-disk-full',
    tried: 'The disk of the audit log is full, to the last byte.',
    holds: 'Members join and publish; it is logged once; when there is room all lines are there, each once and whole.',
    against: '`broker/audit/audit-outbox.ts`: lines of acts wait in the store, and nobody waits for them.',
  },
  {
    id: 'audit-reader-stalled',
    tried: 'Whoever reads the standard output of the broker stops to read.',
    holds: 'Members join, the number of waiting lines is a metric, and the broker ends when it is asked to.',
    against: '`broker/audit/audit-sink.ts`: a pipe is written to as far as it takes.',
  },
  {
    id: 'member-seventh-connection',
    tried: 'A member opens a seventh connection.',
    holds: 'Its oldest is closed, and no other member notices.',
    against: '`protocol/transport/connections.ts`: six connections of one member.',
  },
  {
    id: 'member-status-every-moment',
    tried: 'A member sends another status a hundred times in a row.',
    holds: 'All are acknowledged; one is written, and the last 5 s later.',
    against: '`broker/records/status-records.ts`: one write in five seconds, and the last status wins.',
  },
  {
    id: 'flood-join-bodies',
    tried: 'Thirty connections of strangers hold unfinished Join bodies of 4 MiB, sixteen each.',
    holds: 'Changes arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`protocol/transport/connections.ts`: places and time of strangers.',
  },
  {
    id: 'flood-handshakes',
    tried: 'Two thousand connections begin a TLS handshake and do not go on.',
    holds: 'Changes arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`protocol/transport/connections.ts`: 128 handshakes at a time, the oldest gives way.',
  },
  {
    id: 'flood-resets',
    tried: 'A thousand connections a second are reset as soon as they are there.',
    holds: 'Changes arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`protocol/transport/connections.ts`: what has said nothing costs no TLS.',
  },
  {
    id: 'flood-rapid-reset',
    tried: 'Twenty connections open streams and reset them at once.',
    holds: 'Changes arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`protocol/transport/hosted-clusterset.ts`: how often one connection may reset.',
  },
  {
    id: 'flood-joins',
    tried: 'Joins with tokens that nobody made, over twenty connections, as fast as they are answered.',
    holds: 'Changes arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against:
      '`protocol/transport/connections.ts`: 200 handshakes a second, by turns of addresses; the rest is told when to come back.',
  },
  {
    id: 'flood-member-connections',
    tried: 'One member opens 400 connections with a watch each, and again what is closed.',
    holds: 'Changes of others arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`protocol/transport/connections.ts`: six connections of one member.',
  },
  {
    id: 'flood-member-slices',
    tried: 'One member publishes slices of 27,000 addresses.',
    holds: 'They are refused; changes of others arrive, the broker holds under 400 MB.',
    against: '`broker/records/admission.ts`: 2,000 addresses in one slice; `broker/sessions/rate-limited-writes.ts`.',
  },
  {
    id: 'flood-member-statuses',
    tried: 'One member sends statuses of 64 KiB as fast as they are taken.',
    holds: 'Changes of others arrive, the broker holds under 400 MB.',
    against:
      "`broker/records/status-records.ts` and `broker/sessions/rate-limited-writes.ts`: a quarter of the time is one member's at most.",
  },
  {
    id: 'flood-member-reconnecting',
    tried: 'Fifty clients with the certificate of one member come back each second.',
    holds: 'Changes of others arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`protocol/transport/connections.ts`: six connections of one member.',
  },
  {
    id: 'flood-member-interests',
    tried: 'One member changes its 10,000 namespaces of interest all the time, on four connections.',
    holds: 'Changes of others arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`broker/sessions/snapshots.ts`: what is made for one member alone comes at a rate.',
  },
  {
    id: 'flood-member-slow-readers',
    tried: 'One member opens all watches that it may have, reads nothing, and changes large records.',
    holds: 'Changes of others arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`protocol/transport/broker-service.ts`: two messages wait for a reader, for a minute.',
  },
  {
    id: 'flood-member-records',
    tried: 'One member publishes records without end, each a new one.',
    holds: 'Changes of others arrive, a member that comes anew is let in, the broker holds under 400 MB.',
    against: '`broker/sessions/rate-limited-writes.ts`, and the quota of `model/member-quota.ts`.',
  },
  {
    id: 'flood-member-quota',
    tried: 'A member with a quota of 500 publishes without end, and opens hundreds of watches.',
    holds: 'It has 500 records; changes of others arrive, they lose nothing, a member that comes anew is let in.',
    against: '`broker/records/quota.ts`: records, changes a second and streams of one member.',
  },
]
