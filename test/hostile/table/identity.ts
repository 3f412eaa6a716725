/** Attacks with keys, certificates and ids. */
import type { AttackRow } from './row.ts'

const SUCCESSION = '`broker/identity/succession.ts`'

export const IDENTITY: readonly AttackRow[] = [
  {
    id: 'identity-replaced-renews',
    tried: 'A thief renews a copied certificate after the member renewed it.',
    holds: 'It is refused: at once for a renewal, after five minutes for everything.',
    against: `${SUCCESSION}: the first use of a renewed certificate replaces the one that it was made of.`,
  },
  {
    id: 'identity-many-renewals',
    tried: 'A thief renews a copy twenty times, and uses the results after the overlap.',
    holds: 'The member goes on, and none of the thief’s certificates works afterwards.',
    against: `${SUCCESSION}: a certificate names the one it renews, so no list of those that were issued can overflow.`,
  },
  {
    id: 'identity-fork-thief-last',
    tried: 'A thief and the member renew at the same time; the thief uses its certificate last.',
    holds: 'Neither goes on, also after a restart. The operator is told, and `cluster rekey` brings the member back.',
    against: `${SUCCESSION}: two that were renewed from one and are both used beyond the overlap are a fork.`,
  },
  {
    id: 'identity-fork-owner-last',
    tried: 'The same, with the thief first and the member last.',
    holds: 'As before: whose certificate was used last says nothing about whose identity it is.',
    against: `${SUCCESSION}: as before.`,
  },
  {
    id: 'identity-thief-first',
    tried: 'A thief renews first, while the member is away until after the overlap.',
    holds:
      'Neither goes on once the member has been refused for a minute, also after a restart of the broker. The operator ' +
      'is told, and `cluster rekey` brings the member back.',
    against:
      `${SUCCESSION}: the broker remembers which processes have used a certificate, by a mark that is in memory only; ` +
      'where another one than those went on from it, a late use is a fork.',
  },
  {
    id: 'identity-old-copy',
    tried: 'A copy of a certificate is shown again and again, long after the member itself has renewed it.',
    holds: 'It is refused, and the member goes on.',
    against: `${SUCCESSION}: the process that had the certificate is the one that went on from it.`,
  },
  {
    id: 'identity-stolen-told',
    tried: 'A certificate is shown after it has been replaced, again and again.',
    holds: 'Each time is counted. The log reports it once, with `audit`, and so does `sealane cluster list`.',
    against: '`broker/identity/certificate-use.ts`.',
  },
  {
    id: 'identity-stream-outlives',
    tried: 'A silent stream, opened with a copied certificate, stays open after the renewal.',
    holds: 'The broker ends it with the reason once the overlap is over.',
    against: '`broker/broker.ts` checks the certificate of every open stream, each time it reports who is in contact.',
  },
  {
    id: 'identity-lost-answers',
    tried: 'Twelve answers to renewals are lost, and the broker restarts in between.',
    holds: 'The certificate in use goes on until a later one has been used once; what was replaced then stays refused.',
    against: `${SUCCESSION}: only the first use replaces, and it is in the database.`,
  },
  {
    id: 'identity-two-agents',
    tried: 'Two agents of one cluster renew the same certificate at once, and use what they got.',
    holds: 'Neither is shut out before it can see what is stored; an agent that goes over to that ends nothing.',
    against: `${SUCCESSION}, and \`agent/link/certificate-renewal.ts\`: the stored certificate counts, and agents read it each minute.`,
  },
  {
    id: 'identity-taken-over',
    tried: 'A thief renews first, and the member itself is shut out.',
    holds:
      '`sealane cluster rekey` refuses the thief at once; the token lets the member alone in again, with its addresses.',
    against: '`rekeyMember()` in `broker/members/member-list.ts`.',
  },
  {
    id: 'identity-refused-connections',
    tried: 'A refused thief opens connection after connection, to use up the member’s limit.',
    holds: "The member's stream goes on: a connection with a refused certificate counts as a stranger's.",
    against: '`isWelcome()` in `broker/broker.ts`, asked by `protocol/transport/connections.ts` at each handshake.',
  },
  {
    id: 'key-of-absent-gateway',
    tried: "A member states the WireGuard key of another member's gateway while that is away.",
    holds: 'It is refused, and the gateway comes back with its key.',
    against:
      '`broker/records/record-writes.ts`: a key stays with the member that stated it first, also without a record that has it.',
  },
  {
    id: 'key-after-restart',
    tried: 'The same after the broker restarted, and after the owner of the key was evicted.',
    holds: 'It is refused. Once the owner has left by itself, the key is free.',
    against: '`broker/records/record-writes.ts`: the database holds who owns a key.',
  },
  {
    id: 'key-many-kept',
    tried: 'A member states a hundred keys one after the other, so that the broker forgets those of others.',
    holds: "Of its own the latest 64 are kept; the other member's stay where they are.",
    against: '`broker/records/record-writes.ts`: the limit is for each member.',
  },
  {
    id: 'ids-reserved',
    tried: 'A member joins as `broker`, `kube-system`, `constructor` or `__proto__`.',
    holds:
      'It is refused at the token and at the join, and costs no use of a token. Importers leave such a member out.',
    against: '`isReservedId()` in `model/ids.ts`: broker and importers ask it.',
  },
]
