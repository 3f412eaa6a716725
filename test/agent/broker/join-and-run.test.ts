/** The agent of a cluster that was a member before: it leaves, also while it waits to be taken in again. */
import t from 'tap'
import { joinAndRun } from '../../../agent/broker/join-and-run.ts'
import { rememberIdentity } from '../../../agent/broker/membership/remembered-identity.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { parseClusterId } from '../../../model/ids.ts'
import { LEAVE_REQUESTED_ANNOTATION } from '../../../model/membership.ts'
import { MEMBERSHIP_NAME } from '../../../model/objects.ts'
import { secretIdentity } from '../../../protocol/identity/secret-identity.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/status-board.ts'
import { LoopbackBroker } from '../../cli/loopback-broker.ts'
import { eventually } from '../../support/eventually.ts'
import { MemorySecret } from '../../support/memory-secret.ts'
import { membershipObject } from '../../support/objects/cluster-objects.ts'

t.test('a member of before that waits for approval leaves, also with an agent that has just started', async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const secret = new MemorySecret({ token: await broker.token() })
  const api = new MemoryApi()
  const membership = membershipObject({ clusterId: parseClusterId('milano'), phase: 'joined' })
  await api.apply(membership)
  const logger = new CapturingLogger()
  const deps = { clock: new SystemClock(), logger, metrics: createMetrics('agent'), status: new StatusBoard(), api }
  const facts = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'], labels: {}, version: 'test' }
  const unused = () => Promise.reject(new Error('it is no member'))
  const init = {
    cluster: parseClusterId('milano'),
    facts,
    identity: rememberIdentity(deps, secretIdentity(secret)),
    memberships: { hasMembership: unused, createMembership: unused },
    runMember: unused,
  }
  const ended = joinAndRun(deps, init, AbortSignal.timeout(60_000))
  ended.catch(() => undefined)
  await eventually(async () => (await broker.tokens((store) => store.waiting())).length === 1)
  const annotations = { [LEAVE_REQUESTED_ANNOTATION]: 'true' }
  await api.apply({ ...membership, metadata: { ...membership.metadata, annotations } })
  await ended
  t.equal(api.get('Membership', MEMBERSHIP_NAME)?.spec.phase, 'leaving')
  t.strictSame(secret.content?.data, {}, 'nothing is left to join with')
})
