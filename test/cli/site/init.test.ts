/** `sealane site init`: by flags, by what the machine suggests, and by questions; the result has no finding. */
import { existsSync, mkdirSync, readFileSync, readlinkSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { initSite } from '../../../cli/site/init.ts'
import {
  type Answers,
  QUESTIONS,
  type SiteMachine,
  checkAnswer,
  planSiteFiles,
  suggestion,
} from '../../../cli/site/plan-site-files.ts'
import { readSiteFile } from '../../../kubeapi/files/files.ts'
import { InvalidAddressError } from '../../../model/addresses/addresses.ts'
import { InvalidNameError } from '../../../model/model.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type CliResult, runCli } from '../run-cli.ts'

const FLAGS = ['--name', 'milano', '--node', 'gw=192.168.1.1', '--pod-cidr', '10.42.0.0/24', '--dns', '10.42.0.1']
const WHOLE = [...FLAGS, '--public-address', 'none']

function init(folder: string, ...flags: readonly string[]): Promise<CliResult> {
  return runCli(['site', 'init', folder, ...flags])
}

async function soundAt(t: Test, folder: string): Promise<void> {
  const { code, stdout } = await runCli(['site', 'check', '--site', join(folder, 'site.yaml')])
  t.equal(code, 0, stdout)
}

t.test('by flags, without a terminal', async (t) => {
  const folder = join(temporaryFolder(t), 'new', 'milano')
  const site = join(folder, 'site.yaml')
  const { code, stdout, stderr } = await init(folder, ...WHOLE)
  t.strictSame([code, stdout], [0, `${site}\n${join(folder, 'objects/nodes.yaml')}\n`])
  t.match(
    stderr,
    `next:\n  sealane join --site ${site} --token-file token.txt\n  sealane site install --site ${site} --node gw `,
  )
  await soundAt(t, folder)
  t.match(await readSiteFile(site), {
    ...{ name: 'milano', podCIDRs: ['10.42.0.0/24'], gateways: [{ node: 'gw' }] },
    dns: { listen: ['10.42.0.1:53'] },
  })
})

t.test('several machines, gateways and address families', async (t) => {
  const folder = temporaryFolder(t)
  const { code, stderr } = await init(
    folder,
    ...['--name', 'on', '--node', 'gw1=192.168.1.1', '--node', 'gw1=2001:db8::1', '--node', 'gw2.site=192.168.1.2'],
    ...['--node', '1e3=192.168.1.3', '--gateway', 'gw1', '--gateway', 'gw2.site', '--pod-cidr', '10.42.0.0/24'],
    ...['--pod-cidr', 'gw1=fd00:1::/64', '--pod-cidr', 'gw2.site=10.42.1.0/24', '--pod-cidr', '1e3=10.42.2.0/24'],
    ...['--dns', '10.42.0.1', '--dns', '[fd00:1::1]:5353', '--public-address', '203.0.113.1'],
    ...['--public-address', 'gw2.site=203.0.113.2'],
  )
  t.equal(code, 0, stderr)
  await soundAt(t, folder)
  t.match(await readSiteFile(join(folder, 'site.yaml')), {
    name: 'on',
    podCIDRs: ['10.42.0.0/24', 'fd00:1::/64', '10.42.1.0/24', '10.42.2.0/24'],
    gateways: [
      { node: 'gw1', publicAddress: '203.0.113.1' },
      { node: 'gw2.site', publicAddress: '203.0.113.2' },
    ],
    dns: { listen: ['10.42.0.1:53', '[fd00:1::1]:5353'] },
  })
})

t.test('what fails half way leaves nothing that a second run refuses', async (t) => {
  const folder = temporaryFolder(t)
  const site = join(folder, 'site.yaml')
  // A link to nothing does not exist for the first look, and cannot be created.
  symlinkSync('nothing', site)
  t.match(await init(folder, ...WHOLE), { code: 1, stdout: '', stderr: /the site cannot be written: EEXIST/ })
  t.notOk(existsSync(join(folder, 'objects/nodes.yaml')))
  t.equal(readlinkSync(site), 'nothing', 'what was there stays')
  unlinkSync(site)
  t.match(await init(folder, ...WHOLE), { code: 0 })
})

t.test('existing files stay, whatever they are', async (t) => {
  for (const name of ['site.yaml', 'objects/nodes.yaml']) {
    const folder = temporaryFolder(t)
    mkdirSync(join(folder, 'objects'))
    writeFileSync(join(folder, name), 'mine')
    const { code, stderr } = await init(folder, ...WHOLE)
    t.equal(code, 2)
    t.match(stderr, `${join(folder, name)} exists: expected a folder without a site`)
    t.equal(readFileSync(join(folder, name), 'utf8'), 'mine')
  }
  const twice = join(temporaryFolder(t), 'twice')
  t.strictSame([(await init(twice, ...WHOLE)).code, (await init(twice, ...WHOLE)).code], [0, 2])
  const file = join(temporaryFolder(t), 'file')
  writeFileSync(file, '')
  t.match(await init(file, ...WHOLE), { code: 1, stderr: /the site cannot be written: / })
})

t.test('wrong answers are refused, and nothing is written', async (t) => {
  const with_ = (flag: string, ...values: readonly string[]): string[] => {
    const at = WHOLE.indexOf(flag)
    const rest = at < 0 ? WHOLE : WHOLE.toSpliced(at, 2)
    return [...rest, ...values.flatMap((value) => [flag, value])]
  }
  const rows: readonly (readonly [readonly string[], RegExp])[] = [
    [FLAGS, /no terminal to ask at: expected --public-address\n\s*give the flags, or .*--yes/],
    [[], /expected --name, --node, --pod-cidr, --dns, --public-address/],
    [with_('--name', 'Milano'), /--name "Milano": expected/],
    [with_('--name', ''), /--name "": expected/],
    [with_('--node', '192.168.1.1'), /--node "192\.168\.1\.1": expected NAME=ADDRESS such as gw1=192\.168\.1\.10/],
    [with_('--node', 'gw=gw'), /--node "gw": expected/],
    [with_('--node', 'gw=2001:db8::1'), /expected an IPv4 InternalIP, got IPv6 only\n\s*nothing was written/],
    [with_('--node', 'gw=192.168.1.1', 'w1=192.168.1.1'), /Node gw has 192\.168\.1\.1 already/],
    [with_('--node', 'gw=244.0.0.1'), /244\.0\.0\.1 is in 244\.0\.0\.0\/8 of global addresses/],
    [with_('--pod-cidr', '10.42.0.1/24'), /--pod-cidr "10\.42\.0\.1\/24": expected no host bits set/],
    [
      with_('--pod-cidr', 'gw2=10.42.0.0/24'),
      /--pod-cidr "gw2=10\.42\.0\.0\/24": expected NAME=… with a node of --node, gw/,
    ],
    [with_('--pod-cidr', '10.42.0.0/24', '10.42.0.0/16'), /overlaps/],
    [with_('--pod-cidr', '244.1.0.0/16'), /244\.1\.0\.0\/16 overlaps 244\.0\.0\.0\/8 of global addresses/],
    [with_('--dns', '10.42.0.1:0x35'), /--dns "10\.42\.0\.1:0x35": expected/],
    [with_('--dns', 'localhost:53'), /--dns "localhost:53": expected|--dns "localhost": expected/],
    [with_('--public-address', 'gw_1!'), /--public-address "gw_1!": expected/],
    [with_('--gateway', 'gw2'), /--gateway "gw2": expected one of gw/],
    [
      [...with_('--node', 'gw=192.168.1.1', 'w1=192.168.1.2'), '--public-address', 'w1=203.0.113.1'],
      /--public-address "w1": expected a gateway, gw/,
    ],
  ]
  for (const [flags, want] of rows) {
    const folder = join(temporaryFolder(t), 'site')
    const { code, stdout, stderr } = await init(folder, ...flags)
    t.strictSame([code, stdout], [2, ''], `${flags.join(' ')}: ${stderr}`)
    t.match(stderr, want)
    t.equal(existsSync(folder), false, flags.join(' '))
  }
})

/** A machine with Docker, whose bridge has no containers yet, behind a router. */
const DOCKER: SiteMachine = {
  hostname: 'Milano-1.example.org',
  addresses: [
    { device: 'wlan0', address: '192.168.7.9' },
    { device: 'enp3s0', address: '192.168.1.10' },
  ],
  routes:
    'Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n' +
    'enp3s0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n' +
    'docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n' +
    'enp3s0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n',
}

/** What the machine suggests for each question, if each suggestion is taken. */
function suggestions(machine: SiteMachine, given: Answers = {}): readonly (string | undefined)[] {
  const answers: Record<string, readonly string[]> = { ...given } as Record<string, readonly string[]>
  return QUESTIONS.map((question) => {
    const found = answers[question]?.[0] ?? suggestion(question, machine, answers)
    if (found !== undefined) answers[question] ??= [found]
    return found
  })
}

t.test('what a machine suggests', async (t) => {
  const bridge = (device: string, to: string): string =>
    `${device}\t${to}\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n`
  const whole = ['milano-1', 'milano-1=192.168.1.10', '172.17.0.0/16', '172.17.0.1:53', 'none']
  t.strictSame(suggestions(DOCKER), whole)
  const used = { ...DOCKER, addresses: [{ device: 'docker0', address: '172.17.0.9' }, ...DOCKER.addresses] }
  t.strictSame(suggestions(used), whole.with(3, '172.17.0.9:53'), 'the address of the bridge')
  const cni = { ...DOCKER, routes: `${DOCKER.routes}${bridge('br-1a2b', '0003A8C0')}${bridge('cni0', '00002A0A')}` }
  t.equal(suggestions(cni)[2], '10.42.0.0/24', 'a CNI before Docker, and Docker before its other networks')
  const offline = { ...used, routes: '' }
  const given = { 'pod-cidr': ['10.42.7.0/24'] }
  t.strictSame(
    suggestions(offline, given),
    ['milano-1', 'milano-1=192.168.7.9', '10.42.7.0/24', '10.42.7.1:53', 'none'],
    'no default route: the first address that is no bridge',
  )
  t.strictSame(suggestions({ ...DOCKER, hostname: 'localhost' }, { ...given, node: ['gw=192.0.2.1'] })[0], undefined)
  for (const [range, first] of [
    ['192.0.2.7/32', '192.0.2.7:53'],
    ['fd00:1::/64', '[fd00:1::1]:53'],
  ] as const) {
    t.equal(suggestions(DOCKER, { 'pod-cidr': [range] })[3], first)
  }
  const folder = temporaryFolder(t)
  const context = { signal: new AbortController().signal, output: { answer: () => 0, remark: () => 0 }, terminal: null }
  await initSite({ folder, given: {}, gateways: [], yes: true }, context, DOCKER)
  await soundAt(t, folder)
  const bare = { hostname: 'gw', addresses: [{ device: 'eth0', address: '192.0.2.1' }], routes: '' }
  await t.rejects(initSite({ folder: join(folder, 'x'), given: {}, gateways: [], yes: true }, context, bare), {
    message: 'this machine suggests no value: expected --pod-cidr',
  })
})

/** A terminal at which each question is answered with the next line. */
function terminal(answers: readonly string[]) {
  const input = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => input })
  const output = Object.assign(new PassThrough(), { isTTY: true })
  let said = ''
  let next = 0
  let seen = 0
  output.setEncoding('utf8').on('data', (text: string) => {
    said += text
    // A question ends with a colon and a blank; the answer that is echoed does not.
    const asked = said.slice(seen)
    if (!/: /.test(asked.split('\n').at(-1) ?? '') || next >= answers.length) return
    seen = said.length
    const answer = `${answers[next] ?? ''}\r`
    next += 1
    setImmediate(() => void input.write(answer))
  })
  return { input, output, interrupt: () => undefined, said: () => said, asked: () => next }
}

t.test('five questions, and one again after a wrong answer', async (t) => {
  const folder = temporaryFolder(t)
  const at = terminal(['milano', 'gw=192.168.1.1, w1=192.168.1.2', '10.42.0.0', '10.42.0.0/24 w1=10.42.1.0/24', '', ''])
  const context = { signal: new AbortController().signal, output: { answer: () => 0, remark: () => 0 }, terminal: at }
  await initSite({ folder, given: {}, gateways: [], yes: false }, context, DOCKER)
  await soundAt(t, folder)
  t.match(await readSiteFile(join(folder, 'site.yaml')), {
    ...{ name: 'milano', podCIDRs: ['10.42.0.0/24', '10.42.1.0/24'], dns: { listen: ['10.42.0.1:53'] } },
    gateways: [{ node: 'gw' }],
  })
  t.match(at.said(), 'Name of this site, unique in the clusterset [milano-1]: ')
  t.match(at.said(), '--pod-cidr "10.42.0.0": expected a CIDR such as 10.42.0.0/16')
  t.equal(at.asked(), QUESTIONS.length + 1)
})

t.test('any words give a plan or an error about a flag', async (t) => {
  const word = fc.oneof(
    fc.constantFrom('gw=192.0.2.1', 'gw', '10.0.0.0/8', 'gw=10.1.0.0/16', '10.0.0.1:53', 'none', '=', 'a=b', ''),
    fc.string(),
  )
  const words = fc.array(word, { maxLength: 3 })
  const answers = fc.record({ name: words, node: words, 'pod-cidr': words, dns: words, 'public-address': words })
  fc.assert(
    fc.property(answers, words, (given, gateways) => {
      try {
        for (const question of QUESTIONS) checkAnswer(question, given[question], given)
        planSiteFiles(given, gateways)
      } catch (error) {
        t.ok(error instanceof InvalidNameError || error instanceof InvalidAddressError, String(error))
        t.match((error as Error).message, /^--(name|node|pod-cidr|dns|public-address|gateway) /)
      }
    }),
  )
})
