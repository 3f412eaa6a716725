/** A member publishes another machine's addresses as its own. */
import t from 'tap'
import type { Endpoint, EndpointCandidate } from '../../model/objects.ts'
import { MILANO, PARIS, type Running, idOf, msUntilUp, withTwo } from '../gateway/support/two-gateways.ts'
import { attack } from './support/attack.ts'

t.setTimeout(240_000)

/** The address by which others reach milano: one-to-one NAT in front of the machine, which does not have it itself. */
const IN_FRONT = '203.0.113.50'

const CALLS = `table ip calls {
  counter own { }
  counter paris { }
  chain out {
    type filter hook output priority filter;
    udp sport 4500 ip daddr { ${IN_FRONT}, 192.0.2.10, 127.0.0.0/8, 10.42.0.0/16, 0.0.0.0 } counter name own
    udp sport 4500 ip daddr 198.51.100.20 counter name paris
  }
}`

await attack('candidate-is-own', (t) =>
  withTwo(t, [{ ...MILANO, lane: { lane: 0, publicAddress: IN_FRONT } }, PARIS], async (milano, paris) => {
    await milano.site.gateway.exec('nft', ['-f', '-'], { input: CALLS })
    const forged = [IN_FRONT, '192.0.2.10', '127.0.0.1', '10.42.0.1', '0.0.0.0'].map(publicly)
    report(paris, milano, (reported) => [...forged, ...reported])
    // Paris only waits for calls, so the lane is up only if milano finds the right address among the candidates.
    report(milano, paris, () => [])
    await msUntilUp(milano, paris)
    const counted = await milano.site.gateway.exec('nft', ['list', 'counters', 'table', 'ip', 'calls'])
    t.match(counted, /counter own \{\s+packets 0 /, 'and never called itself')
    t.match(counted, /counter paris \{\s+packets [1-9]/, 'while it called the other')
  }),
)

function publicly(address: string): EndpointCandidate {
  return { kind: 'public', address, port: 4500 }
}

/** Tells one gateway about the other as the broker would, with other candidates. */
function report(
  from: Running,
  to: Running,
  change: (reported: readonly EndpointCandidate[]) => readonly EndpointCandidate[],
): void {
  to.process.put(from.site.init.cluster)
  from.process.onObject((object) => {
    if (object.kind !== 'Endpoint' || object.spec.cluster !== idOf(from)) return
    const endpoint: Endpoint = { ...object, spec: { ...object.spec, candidates: change(object.spec.candidates) } }
    to.process.put(endpoint)
  })
}
