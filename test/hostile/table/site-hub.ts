/** Callers of the hub of a plain site, and nodes of the site that say more than they may. */
import type { AttackRow } from './row.ts'

const SERVER = '`kubeapi/remote/hub-server.ts`'
const WATCH = '`kubeapi/remote/hub-watch.ts`'
const STORE = '`compose/hub/hub-store.ts`'

export const SITE_HUB: readonly AttackRow[] = [
  {
    id: 'site-hub-stranger',
    tried:
      'A caller without a certificate, and one with a certificate of a forged authority, reads, writes and renews.',
    holds: 'Each request and each watch is refused, and nothing is written.',
    against: `${SERVER}: only a certificate that the authority of the site has issued names a node.`,
  },
  {
    id: 'site-hub-invitation',
    tried: 'An invitation is guessed, used for another node, for a second key, too late, and after a newer one.',
    holds: 'It is refused, and the node that it was meant for can still use it.',
    against: `${STORE}: a hash of the secret, one node, one key, an expiry.`,
  },
  {
    id: 'site-hub-false-hub',
    tried: 'A hub of another authority, or under another name, answers a node.',
    holds: 'The node sends it nothing.',
    against:
      '`kubeapi/remote/hub-connection.ts`: the authority is in the file of the node, and nodes have no server usage.',
  },
  {
    id: 'site-hub-revoked',
    tried: 'A node that was revoked, or invited again with another key, goes on with its certificate.',
    holds: 'Its next request is refused.',
    against: `${STORE}: the hash of the key of each node is compared for each request.`,
  },
  {
    id: 'site-hub-foreign-writes',
    tried:
      "A node writes another's Gateway, imports, the Membership, a Lease that is held, and a status nobody can read.",
    holds: 'Each is refused, and what was there stays.',
    against: '`kubeapi/remote/plan-access.ts`, and the forms of `model/schemas/` in `kubeapi/remote/wire.ts`.',
  },
  {
    id: 'site-hub-malformed',
    tried: 'A node sends no JSON, unknown verbs and kinds, names that are paths, and a body of more than 1 MiB.',
    holds: 'Each is refused, and the next request is answered.',
    against: '`kubeapi/remote/wire.ts`: each request has one form.',
  },
  {
    id: 'site-hub-held-connections',
    tried: 'Strangers hold 40 connections without a handshake and 40 with one.',
    holds: 'A node is served at once, and the strangers are disconnected.',
    against: `${SERVER}: at most 16 strangers, each for 10 s, and 5 s for a handshake.`,
  },
  {
    id: 'site-hub-stuck-reader',
    tried: 'A node opens a watch and reads nothing while a large object changes 60 times.',
    holds: 'Other nodes see each state, and the stuck one later the last.',
    against: `${WATCH}: a reader has a set of keys and no queue of changes.`,
  },
  {
    id: 'site-hub-flood',
    tried: 'A node sends hundreds of requests at once, without a pause.',
    holds: 'Those beyond its rate are refused, and another node is served.',
    against: `${SERVER}: a rate for each node.`,
  },
  {
    id: 'site-hub-false-peer',
    tried: 'A node, a stranger and a revoked hub vote and send files as a hub; a hub sends paths outside the site.',
    holds: 'Each is refused, and no file is written.',
    against: `${SERVER}: only a certificate of a hub. \`compose/hub/hub-tree.ts\`: only paths of a site.`,
  },
  {
    id: 'site-hub-old-term',
    tried: 'A hub of a lower term sends files, asks for votes, and one sends changes for another version, or too much.',
    holds: 'The answer has the higher term, and no file is written.',
    against: '`kubeapi/remote/plan-term.ts`, and the sizes of `kubeapi/remote/wire.ts`.',
  },
]
