/**
 * A site handles the address at which the broker saw it, for each of the three reports that a broker can give: the
 * address counts, it does not count, or an earlier release does not tell.
 */
import t from 'tap'
import { membershipByIdentity } from '../../compose/site/run-site.ts'
import { secretIdentity } from '../../protocol/membership/secret-identity.ts'
import { decodeMemberIdentity, encodeMemberIdentity } from '../../protocol/membership/member-files.ts'
import { keptMembership } from '../../model/membership.ts'
import { identityParts } from '../support/identity-parts.ts'
import { MemorySecret } from '../support/memory-secret.ts'

t.test('the observed address is dropped only where the broker said that it does not count', async (t) => {
  const parts = await identityParts()
  const facts = JSON.parse(parts['broker.json'] ?? '') as object
  const ranges = { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' }
  const rows = [
    { say: 'it counts', observedCounts: true, want: '192.0.2.2' },
    { say: 'it does not', observedCounts: false, want: undefined },
    { say: 'an earlier release does not tell', observedCounts: undefined, want: '192.0.2.2' },
  ]
  for (const { say, observedCounts, want } of rows) {
    const data = { ...parts, 'broker.json': JSON.stringify({ ...facts, ...ranges, observedCounts }) }
    const found = await membershipByIdentity(secretIdentity(new MemorySecret(data)))
    t.equal(found.observedAddress, want, `${say}: a site`)
    const identity = decodeMemberIdentity(data, (part) => part)
    if (identity === undefined) throw new Error('no identity')
    t.equal(keptMembership(identity)?.spec.observedAddress, want, `${say}: the Membership that is made again`)
    const again = decodeMemberIdentity(encodeMemberIdentity(identity), (part) => part)
    t.equal(again?.observedCounts, observedCounts, `${say}: also after a renewal`)
  }
})
