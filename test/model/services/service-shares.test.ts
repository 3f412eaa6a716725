/** To which clusters open connections are ended. */
import t from 'tap'
import { type SharesWorld, TrafficPolicies, endedClusters, sharesOfService } from '../../../model/services/services.ts'
import type { EndpointSlice } from '../../../model/objects.ts'
import { cluster, serviceImport, slice } from '../../routeagent/support/site.ts'

const NOW = { 'sealane.io/drained': 'true', 'sealane.io/drained-now': 'true' }

t.test('open connections are ended only while another cluster takes the calls', (t) => {
  const paris = cluster('paris', 2, '244.1.0.0/16')
  type Drain = 'cluster' | 'cluster now' | 'service now' | 'cluster, its slices say now' | 'slices alone say now'
  type Case = readonly [say: string, drain: Drain, roma: string, reachable: readonly string[], want: string]
  const rows: readonly Case[] = [
    ['drained only', 'cluster', '244.2.0.5', ['paris', 'roma'], ''],
    ['the cluster', 'cluster now', '244.2.0.5', ['paris', 'roma'], 'paris'],
    ['the service', 'service now', '244.2.0.5', ['paris', 'roma'], 'paris'],
    ['the CRD of an earlier release', 'cluster, its slices say now', '244.2.0.5', ['paris', 'roma'], 'paris'],
    ['a mark of a drain that is over', 'slices alone say now', '244.2.0.5', ['paris', 'roma'], ''],
    ['out of reach: a client waits in vain', 'cluster now', '244.2.0.5', ['roma'], 'paris'],
    ['the last one that is ready', 'cluster now', '244.2.0.5!', ['paris', 'roma'], ''],
    ['the last one, while its link fails for a moment', 'cluster now', '244.2.0.5!', [], ''],
    ['so with a service', 'service now', '244.2.0.5!', [], ''],
    ['no cluster is reached', 'cluster now', '244.2.0.5', [], ''],
  ]
  for (const [say, drain, roma, reachable, want] of rows) {
    const spec = drain.startsWith('cluster') ? { ...paris.spec, drained: true } : paris.spec
    const now = drain === 'cluster now' ? { ...spec, drainedNow: true } : spec
    const mark = drain.endsWith('say now') ? { 'sealane.io/drained-now': 'true' } : {}
    const annotations = drain === 'service now' ? NOW : mark
    const marked = slice('web', 'paris', ['244.1.0.5'])
    const slices: EndpointSlice[] = [
      { ...marked, metadata: { ...marked.metadata, annotations } },
      slice('web', 'roma', [roma]),
    ]
    const world: SharesWorld = {
      ...{ self: 'milano', clusterset: undefined, reachable: new Set(reachable) },
      clusters: new Map([
        ['paris', { ...paris, spec: now }],
        ['roma', cluster('roma', 3, '244.2.0.0/16')],
      ]),
      policies: new TrafficPolicies({ policies: [], clusterPolicies: [] }),
    }
    const shares = sharesOfService(serviceImport('web', '245.0.0.7'), slices, world)
    const ended = shares === undefined ? [] : [...endedClusters(shares, slices, world)]
    t.equal(ended.join(), want, say)
    const message = shares?.shares.find(({ cluster: id }) => id === 'paris')?.message ?? ''
    t.equal(message.includes('are ended'), want !== '' && reachable.includes('paris'), `${say}: "${message}"`)
  }
  t.end()
})
