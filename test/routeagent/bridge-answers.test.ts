/** Where pods are on a bridge whose traffic netfilter does not see, an answer to a neighbour is not translated back. */
import t from 'tap'
import type { InterfaceAddress, Link } from '../../kernel/route/route-table.ts'
import { parsePrefix } from '../../model/values/ip.ts'
import { type KernelFacts, bridgeHidesAnswers } from '../../routeagent/world/node-world.ts'

const PODS = [parsePrefix('10.42.1.0/24')]
const link = (name: string, kind: string): Link => ({ name, kind }) as Link
const address = (device: string, text: string): InterfaceAddress => ({ device, address: text })

t.test('only a bridge with an address of pods, whose traffic netfilter does not see', async (t) => {
  const links = [link('cni0', 'bridge'), link('docker0', 'bridge'), link('eth0', '')]
  const rows: [say: string, addresses: InterfaceAddress[], bridgeNetfilter: string | undefined, want: boolean][] = [
    ['a bridge of pods', [address('cni0', '10.42.1.1/24')], '0', true],
    ['netfilter is not asked at all', [address('cni0', '10.42.1.1/24')], undefined, true],
    ['netfilter sees it', [address('cni0', '10.42.1.1/24')], '1', false],
    ['a bridge of something else', [address('docker0', '172.17.0.1/16')], '0', false],
    ['pods without a bridge', [address('eth0', '10.42.1.1/24')], '0', false],
    ['nothing', [], '0', false],
  ]
  for (const [say, addresses, bridgeNetfilter, want] of rows) {
    const facts = { links, addresses, bridgeNetfilter } as Partial<KernelFacts> as KernelFacts
    t.equal(bridgeHidesAnswers(facts, PODS, 4), want, say)
  }
  const six = { links, addresses: [address('cni0', '10.42.1.1/24')], bridgeNetfilter: '1', bridgeNetfilter6: '0' }
  t.equal(bridgeHidesAnswers(six as Partial<KernelFacts> as KernelFacts, PODS, 6), true, 'each family has its switch')
})
