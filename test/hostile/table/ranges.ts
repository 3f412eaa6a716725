/** Attacks with the addresses that a member states. */
import type { AttackRow } from './row.ts'

export const RANGES: readonly AttackRow[] = [
  {
    id: 'range-public',
    tried: 'A member states public space as pods or Services: a name server, a whole /8, IPv6.',
    holds:
      'It is refused, the refusal names the range and the option that would allow it, and no other member receives it.',
    against:
      '`model/addresses/required-ranges.ts` `mayState()`: private, shared and benchmark space, and what the token names; asked by `broker/members/membership.ts`.',
  },
  {
    id: 'range-holds-broker',
    tried: 'A member may state 203.0.113.0/24, its pods are in /28, and the broker is 203.0.113.2.',
    holds: 'Its pods get global addresses, and its join and the list of members say why.',
    against:
      '`broker/addresses/allocation.ts`: the broker’s address is a claim like any other, and pods that overlap a claim are translated.',
  },
  {
    id: 'range-holds-broker-ipv6',
    tried: 'The same with an IPv6 range that holds the IPv6 address of the broker.',
    holds: 'No member receives the range, and the join says why.',
    against:
      '`model/addresses/ipv6-claims.ts`: IPv6 is not translated, so a range that holds what all need is left out.',
  },
  {
    id: 'range-too-large-to-translate',
    tried: 'A member states 10.0.0.0/8, which holds the broker and is too large to translate.',
    holds: 'It is refused with both reasons, and nothing of it is kept.',
    against: '`broker/addresses/allocation.ts` `blockFor()`.',
  },
  {
    id: 'range-holds-gateway',
    tried: "A member states a range that holds another gateway's address, before or after it is published.",
    holds: 'The member with the range is translated both times, and the gateway keeps its address.',
    against:
      '`broker/addresses/address-claims.ts`: where gateways are called counts as a claim, also of members that tell nothing else.',
  },
  {
    id: 'range-gateway-of-another',
    tried: 'The same range reaches an importer without translation, from an earlier broker.',
    holds: 'The importer calls the other gateway as before, at the same addresses in the same order.',
    against:
      '`gateway/links/check-remotes.ts` and `gateway/reach/plan-candidates.ts`: ranges of other members do not decide where a gateway is called.',
  },
  {
    id: 'range-holds-nodes',
    tried: 'Pods in 192.168.0.0/16 join beside a member whose nodes are in 192.168.1.0/24.',
    holds: 'The pods get global addresses and both clusters reach each other; the join says why.',
    against:
      '`agent/cluster/plan-required-ranges.ts` tells the broker what machines need, and `broker/addresses/allocation.ts` counts it.',
  },
  {
    id: 'range-holds-router',
    tried: "A member states the part of another's node network with its router, by IPv4 and IPv6.",
    holds: 'IPv4 is translated, IPv6 is not carried, and the network stays as a whole with its owner.',
    against:
      '`routeagent/routes/plan-node-routes.ts` reports whole networks and default gateways, not only addresses of nodes.',
  },
  {
    id: 'range-holds-name-server',
    tried: 'A member whose token allows it states a network that holds the name server of another.',
    holds: 'IPv4 is translated, IPv6 is not carried.',
    against: '`runtime/machine-network.ts` reads the resolver of each node, and the agent reports it.',
  },
  {
    id: 'range-grows-later',
    tried: "A member with a private range later states public space, another's IPv6, and pods over nodes.",
    holds:
      'The first is refused and changes nothing; the second takes nothing from the other; the third is translated.',
    against:
      '`broker/members/membership.ts` `changeFacts()` asks the same, and `broker/addresses/address-claims.ts` keeps the order of claims.',
  },
  {
    id: 'range-needed-is-bounded',
    tried: "A member states that its machines need all addresses, loopback, or another's pods.",
    holds:
      'What is no network of machines is refused; the pods of another are translated, no more than by stating them as pods.',
    against: '`broker/records/admission-facts.ts` `admitNeeded()`.',
  },
  {
    id: 'range-importer-refuses',
    tried: 'A compromised broker publishes ranges over the broker, nodes, router and name server.',
    holds: 'The cluster takes in none of them, routes none of them, says why, and stays connected to the broker.',
    against:
      '`agent/import/check-record.ts` with `agent/cluster/plan-required-ranges.ts`, and `model/addresses/remote-clusters.ts` on each node.',
  },
  {
    id: 'range-correction-arrives',
    tried: 'The broker corrects a range that holds it and has routes in kernels, and evicts its owner.',
    holds:
      'Each of them takes the routes out by itself, reaches the broker again, takes the correction, and then the eviction.',
    against:
      '`agent/mirror/mirror-loop.ts` `#endHarm()`: harmful routes are removed before the agent has heard the broker.',
  },
]
