/** A bad day. */
import type { AttackRow } from './row.ts'

const GATEWAY =
  '`gateway/main.ts` follows nftables and rtnetlink; `kernel/drift.ts` tells repairs from changes of the plan.'
const NODE =
  '`routeagent/main.ts` follows nftables and rtnetlink; `kernel/drift.ts` tells repairs from changes of the plan.'

export const FAULTS: readonly AttackRow[] = [
  {
    id: 'gateway-nft-flushed',
    tried: 'Somebody runs `nft flush ruleset` on a gateway.',
    holds:
      'The tables of both families are back at once, traffic goes on, and the log says that the whole table was missing.',
    against: GATEWAY,
  },
  {
    id: 'gateway-chain-deleted',
    tried: "Somebody deletes one chain of a gateway's table.",
    holds: 'It is back at once, and the log names it.',
    against: GATEWAY,
  },
  {
    id: 'gateway-route-deleted',
    tried: 'Somebody deletes a route into a lane, and puts one there that is not ours.',
    holds: 'The one is back and the other gone at once, each with a line of the log.',
    against: GATEWAY,
  },
  {
    id: 'gateway-rule-deleted',
    tried: "Somebody deletes the rule that leads to a gateway's routes.",
    holds: 'It is back at once, with a line of the log.',
    against: GATEWAY,
  },
  {
    id: 'gateway-peer-removed',
    tried: 'Somebody removes the peer of a lane.',
    holds: 'It is back once the probes miss it, the lane comes up again, and the log names the peer.',
    against: GATEWAY,
  },
  {
    id: 'gateway-device-deleted',
    tried: 'Somebody deletes the device of a lane.',
    holds:
      'It is made anew with its address, routes and peers, the lane comes up again, and the log says what was missing.',
    against: GATEWAY,
  },
  {
    id: 'node-nft-flushed',
    tried: 'Somebody runs `nft flush ruleset` on a node.',
    holds:
      'The tables of both families are back at once, the overlay stays closed to strangers, and the log says what was missing.',
    against: NODE,
  },
  {
    id: 'node-chain-deleted',
    tried: "Somebody deletes one chain of a node's table.",
    holds: 'It is back at once, and the log names it.',
    against: NODE,
  },
  {
    id: 'node-route-and-rule-deleted',
    tried: 'Somebody deletes a route to another cluster and the rule that leads to it, on a node.',
    holds: 'Both are back at once, each with a line of the log and a count.',
    against: NODE,
  },
  {
    id: 'node-overlay-deleted',
    tried: 'Somebody deletes the overlay device of a node.',
    holds:
      'It is made anew with its neighbours and routes, other clusters are reached, and the log says what was missing.',
    against: NODE,
  },
  {
    id: 'node-neighbour-deleted',
    tried: "Somebody deletes the neighbour and the forwarding entry of another node from a node's overlay.",
    holds: 'Both are back at once, with a line of the log.',
    against: NODE,
  },
]
