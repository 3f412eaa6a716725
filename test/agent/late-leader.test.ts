/**
 * An agent becomes the leader after the previous leader has ended; each row is one state that it finds. The command
 * that leaves removes the objects, including the Lease of the agents, and then the identity. A cache may still hold the
 * Membership.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { agentConfig } from '../../agent/loop/config.ts'
import { runAgent } from '../../agent/main.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { membershipObject } from '../support/objects/cluster-objects.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const ROWS: readonly [say: string, phase: 'joined' | 'leaving', identity: 'gone' | 'damaged', error?: RegExp][] = [
  ['it has left: there is nothing to do', 'leaving', 'gone'],
  ['it leaves, and its identity cannot be read', 'leaving', 'damaged', /broker\.json/],
  ['a member without an identity', 'joined', 'gone', /it has no identity: join with/],
]

t.test('who comes late', async (t) => {
  for (const [say, phase, identity, error] of ROWS) {
    const folder = temporaryFolder(t)
    if (identity === 'damaged') {
      mkdirSync(join(folder, 'identity'))
      writeFileSync(join(folder, 'identity/broker.json'), 'nonsense')
    }
    const api = new MemoryApi()
    await api.apply(membershipObject({ phase }))
    const logger = new CapturingLogger()
    const deps = { api, clock: new SystemClock(), logger, metrics: createMetrics('agent'), status: new StatusBoard() }
    const running = runAgent(deps, agentConfig(folder), new AbortController().signal)
    if (error !== undefined) await t.rejects(running, { name: 'IdentityFileError', message: error }, say)
    else await t.resolves(running, say)
    t.equal(logger.messages('info').includes('this cluster has already left'), error === undefined, say)
  }
})
