/**
 * The names that explain/ looks for are those that are installed. explain/ may not import the installer, so this test
 * compares them.
 */
import t from 'tap'
import {
  AGENT_LEASE,
  DNS_POD_PORT,
  LABEL_COMPONENT,
  MEMBER_PARTS,
  PART_WORKLOADS,
  workloadName,
} from '../../explain/facts/world.ts'
import { DNS_CONTAINER_PORT, AGENT_LEASE as INSTALLED_LEASE, selectorLabels } from '../../install/values/names.ts'
import { planMember } from '../../install/plan-member.ts'
import { DEFAULT_VALUES } from '../../install/values/install-values.ts'

t.test('parts, what runs them, their labels, and the Lease', async (t) => {
  const objects = planMember(DEFAULT_VALUES).flatMap((part) => part.objects)
  for (const part of MEMBER_PARTS) {
    const found = objects.filter(({ kind }) => kind === PART_WORKLOADS[part]).map(({ metadata }) => metadata.name)
    t.ok(found.includes(workloadName(part)), `${PART_WORKLOADS[part]} ${workloadName(part)} of ${found.join(', ')}`)
    t.equal((selectorLabels(part) as Record<string, string>)[LABEL_COMPONENT], part)
  }
  const all = objects.filter(({ kind }) => kind === 'Deployment' || kind === 'DaemonSet')
  t.equal(all.length, MEMBER_PARTS.length, 'none is left out')
  t.equal(AGENT_LEASE, INSTALLED_LEASE)
  t.equal(DNS_POD_PORT, DNS_CONTAINER_PORT)
})
