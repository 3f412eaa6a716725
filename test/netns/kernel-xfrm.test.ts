/** XFRM policies of a real kernel: ours are listed and removed, those of other software are not touched. */
import { execFileSync } from 'node:child_process'
import t from 'tap'
import { XfrmPolicies } from '../../kernel/xfrm/xfrm-policies.ts'
import { forwardPoliciesCompliance } from '../compliance/forward-policies.ts'
import { inPrivateNetns } from '../support/netns.ts'

const sh = (line: string): string => execFileSync('ip', line.split(' '), { encoding: 'utf8' })

/** Of IPsec, with ports, for an XFRM device, of other directions, with host bits, and with our priorities in another form. */
const THEIRS = [
  'src 244.3.0.0/16 dst 10.42.0.0/16 dir fwd priority 2975 tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel',
  'src 244.3.0.0/16 dst 10.42.0.0/16 dir in action block priority 4294007311',
  'src 244.3.0.0/16 dst 10.42.0.0/16 dir out action block priority 4294007311',
  'src 244.4.0.0/16 dst 10.42.0.0/16 dir fwd action block priority 4294007310',
  'src 244.5.0.0/16 dst 10.42.0.0/16 dir fwd action allow priority 4294007311',
  'src 244.6.0.0/16 dst 10.42.0.0/16 proto udp dport 500 dir fwd action block priority 4294007311',
  'src 244.7.0.0/16 dst 10.42.0.0/16 dir fwd action block priority 4294007311 if_id 7',
  'src 244.9.0.0/16 dst 10.42.0.0/16 proto tcp dport 80 dir fwd priority 3000',
  'src 244.9.0.0/16 dst 10.42.0.0/16 dir fwd priority 3000 if_id 7',
  'src 244.9.0.0/16 dst 10.42.0.0/16 dir fwd priority 3000 mark 0x1 mask 0xff',
  'src 244.8.0.0/16 dst 10.42.0.0/16 dir fwd action block priority 4294007311 mark 0x1 mask 0xff',
  'src 244.10.1.2/16 dst 10.42.0.1/16 dir fwd priority 3001',
  'src fd44::1/48 dst fd42::1/48 dir fwd priority 3002',
  'src 244.10.1.2/16 dst 10.43.0.0/16 dir fwd action block priority 4294007311',
]

inPrivateNetns(t, import.meta.url, () => {
  const policies = new XfrmPolicies()
  t.teardown(() => policies.close())
  forwardPoliciesCompliance(t, () => policies)

  t.test('policies of other software', async (t) => {
    for (const one of THEIRS) sh(`xfrm policy add ${one}`)
    const before = sh('xfrm policy list')
    const { ours, earlier } = await policies.list()
    t.strictSame(ours, [], 'none of them is ours')
    const counts = (source: string, priority: number) => ({ source, destination: '10.42.0.0/16', priority })
    const six = { source: 'fd44::/48', destination: 'fd42::/48', priority: 3002 }
    t.strictSame(
      [...earlier].sort((a, b) => a.priority - b.priority),
      [counts('244.3.0.0/16', 2975), counts('244.9.0.0/16', 3000), counts('244.10.0.0/16', 3001), six],
      'those that count first, for all marks and XFRM devices',
    )
    const same = { source: '244.4.0.0/16', destination: '10.42.0.0/16', action: 'block' } as const
    await t.rejects(policies.add(same), { code: 'EEXIST' }, 'with another priority')
    await policies.add({ source: '244.1.0.0/16', destination: '10.42.0.0/16', action: 'block' })
    const found = (await policies.list()).ours
    t.equal(found.length, 1)
    for (const one of found) await policies.remove(one)
    t.equal(sh('xfrm policy list'), before)
  })

  t.test('as ip prints it', async (t) => {
    await policies.add({ source: '244.1.0.0/16', destination: '10.42.0.0/16', action: 'allow', mark: 0x2000 })
    const [added = ''] = sh('xfrm policy list src 244.1.0.0/16').split('\n\n')
    const text = added
      .replaceAll(/\s+|ptype main/g, ' ')
      .replaceAll(/ +/g, ' ')
      .trim()
    t.equal(text, 'src 244.1.0.0/16 dst 10.42.0.0/16 dir fwd priority 4294007310 mark 0x2000/0x2000')
    sh('xfrm policy add src 244.1.0.0/16 dst 10.42.0.0/16 dir fwd action block priority 4294007311')
    const ends = (): string[] => sh('-s xfrm policy list src 244.1.0.0/16').match(/(?<=expire add: ).*/g) ?? []
    t.strictSame(ends().sort(), ['soft 0(sec), hard 0(sec)', 'soft 0(sec), hard 360(sec)'])
    await policies.refresh({ source: '244.1.0.0/16', destination: '10.42.0.0/16', action: 'block' })
    t.strictSame(ends().sort(), ['soft 0(sec), hard 300(sec)', 'soft 0(sec), hard 360(sec)'])
  })
})
