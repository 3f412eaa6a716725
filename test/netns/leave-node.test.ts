/** `sealane leave --node`: a node that was given up with --force returns with Sealane still in its kernel. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { Rtnetlink } from '../../kernel/route/rtnetlink.ts'
import { runCommand } from '../../kernel/run-command.ts'
import { WgCommand } from '../../kernel/wireguard/wg-command.ts'
import { runCli } from '../cli/run-cli.ts'
import { SiteFolder } from '../cli/site-folder.ts'
import { inPrivateNetns } from '../support/netns.ts'

async function here(line: string, input?: string): Promise<string> {
  const [command = '', ...args] = line.split(' ')
  const result = await runCommand(command, args, input === undefined ? {} : { input })
  if (result.code !== 0) throw new Error(`${line}: ${result.stderr}`)
  return result.stdout
}

async function kernel(): Promise<string> {
  const looks = [
    'ip -o link',
    'ip -4 rule',
    'ip -4 route show table all',
    'nft list ruleset',
    'ip xfrm policy list',
    'sysctl net.ipv4.ip_forward',
  ]
  const texts: string[] = []
  for (const look of looks) texts.push(await here(look))
  return texts.join('\n')
}

const LEFT_OVER = `link add sealane-vx type bridge
link add other type bridge
link set sealane-vx up
route add 244.1.0.0/16 dev sealane0 table 7311 proto 173
route add 244.1.0.0/16 dev sealane-vx table 7312 proto 173
route add unreachable 244.0.0.0/8 metric 9999 table 7312 proto 173
route add 10.42.1.0/24 dev sealane-vx table 7310 proto 173
rule add pref 7310 iif sealane0 table 7310 protocol 173
rule add pref 7311 table 7311 protocol 173
rule add pref 7312 table 7312 protocol 173`

/** A policy of IPsec software, and what keeps other clusters out without nft tables. */
const THEIR_POLICY = 'xfrm policy add src 244.1.0.0/16 dst 10.42.0.0/16 dir fwd action allow priority 2975 mark 7'
const OUR_POLICIES = `xfrm policy add src 244.1.0.0/16 dst 10.42.0.0/16 dir fwd action block priority 4294007311
xfrm policy add src fd42:2::/48 dst fd42:1::/48 dir fwd action allow priority 4294007310 mark 0x2000 mask 0x2000
`

inPrivateNetns(t, import.meta.url, () => {
  t.test('what an earlier membership left is taken out, and nothing else', async (t) => {
    const site = new SiteFolder(t, 'milano', '  gateways: [{ node: gw, lane: 0 }]\n')
    const clean = ['leave', '--node', 'gw', '--site', site.file]
    const up = await runCli([
      'up',
      '--node',
      'gw',
      '--site',
      site.file,
      '--status-listen',
      ':0',
      '--log-level',
      'silent',
    ])
    t.same(up, {
      code: 1,
      stdout: '',
      stderr:
        'sealane: this site has not joined a clusterset\n' +
        'join first: sealane join --token-file FILE; to clean up after an earlier membership on this node: ' +
        `sealane leave --node gw --site ${site.file}\n`,
    })

    await here('ip link add other type bridge')
    await here('nft -f -', 'table ip theirs { chain c { }; }')
    await here(`ip ${THEIR_POLICY}`)
    const before = await kernel()
    await here('ip link del other')
    await makeLane(site.path('state/nodes/gw'))
    await here('ip -batch -', LEFT_OVER)
    await here('ip -batch -', OUR_POLICIES)
    await here('nft -f -', 'table ip sealane_node { chain c { }; }\ntable ip sealane_gateway { chain c { }; }')
    await here('sysctl -qw net.ipv4.ip_forward=1')
    const boot = (await here('cat /proc/sys/kernel/random/boot_id')).trim()
    writeFileSync(site.path('state/nodes/gw/routeagent-switched-on-forwarding'), boot)
    const done = { code: 0, stdout: 'Sealane was removed from this node\n', stderr: '' }
    t.same(await runCli(clean), done)
    t.equal(withoutNumbers(await kernel()), withoutNumbers(before))
    t.notOk(site.has('state/nodes/gw/lane0.key'))
    t.same(await runCli(clean), done, 'again is fine')
  })
})

async function makeLane(state: string): Promise<void> {
  const routes = new Rtnetlink()
  const wireguard = new WgCommand({ routes })
  const privateKeyFile = join(state, 'lane0.key')
  mkdirSync(state, { recursive: true, mode: 0o700 })
  writeFileSync(privateKeyFile, wireguard.generateKey().privateKey, { mode: 0o600 })
  await wireguard.ensureDevice('sealane0', { privateKeyFile, mtu: 1420 })
  routes.close()
}

/** The text without device numbers and link addresses, which differ for a device that is made again. */
function withoutNumbers(text: string): string {
  return text.replace(/^\d+: /gm, '').replace(/link\/ether \S+/g, '')
}
