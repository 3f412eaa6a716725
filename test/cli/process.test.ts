/** bin/sealane as users start it: a process with an exit code and two outputs. */
import { chmodSync } from 'node:fs'
import t, { type Test } from 'tap'
import { cannotBeNobody } from '../support/as-nobody.ts'
import { type CliResult, type SpawnInit, spawnCli } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'

async function sealane(t: Test, args: string[], init: SpawnInit = {}): Promise<CliResult> {
  const result = await spawnCli(args, init)
  t.notMatch(result.stdout + result.stderr, '\u001b', `${args.join(' ')}: no escape codes`)
  t.notMatch(result.stderr, /^ {4}at /m, `${args.join(' ')}: no stack trace`)
  return result
}

t.test('exit codes 0, 1, 2; answers on stdout, complaints on stderr', { jobs: 2 }, (t) => {
  t.test('done', async (t) => {
    const { code, stdout, stderr } = await sealane(t, ['version', '-o', 'json'])
    t.equal(code, 0)
    t.match(JSON.parse(stdout), { sealane: /^\d+\.\d+\.\d+$/, node: /^\d+\./ })
    t.equal(stderr, '')
  })
  t.test('failed', async (t) => {
    const site = new SiteFolder(t)
    const { code, stdout, stderr } = await sealane(t, ['leave'], { cwd: site.folder })
    t.same(
      { code, stdout, stderr },
      { code: 1, stdout: '', stderr: 'sealane: this site has not joined a clusterset\n' },
    )
  })
  t.test('wrong usage, also when colours are forced', async (t) => {
    const { code, stdout, stderr } = await sealane(t, ['show', 'clusters', '-o', 'xml'], { env: { FORCE_COLOR: '1' } })
    t.same(
      { code, stdout, stderr },
      {
        code: 2,
        stdout: '',
        stderr: 'sealane: --output "xml": expected table, wide, json, yaml\nsee: sealane show clusters --help\n',
      },
    )
  })
  t.test('help is an answer', async (t) => {
    const { code, stdout, stderr } = await sealane(t, ['token', 'create', '--help'], { env: { NO_COLOR: '1' } })
    t.equal(code, 0)
    t.match(stdout, /^Usage: sealane token create \[options\]\n/)
    t.match(stdout, '  --ttl <duration>       how long the token is valid (default: 15m)\n')
    t.equal(stderr, '')
  })
  t.end()
})

t.test('the token may come from standard input or the environment', { jobs: 2 }, (t) => {
  const site = new SiteFolder(t)
  const damaged =
    'join token: its checksum is wrong: the token was truncated or changed when copied\nreason: TokenDamaged'
  const rows: [string, string[], SpawnInit, number, string][] = [
    ['stdin', ['--token-file', '-'], { input: 'sealane1.abcdefgh\n' }, 1, damaged],
    ['nothing on stdin', ['--token-file', '-'], {}, 1, 'standard input: expected a join token, but it is empty'],
    ['environment', [], { env: { SEALANE_TOKEN: 'sealane1.abcdefgh' } }, 1, damaged],
    [
      'flag before environment',
      ['--token', 'abc'],
      { env: { SEALANE_TOKEN: 'sealane1.abcdefgh' } },
      1,
      'join token: expected text that begins with "sealane1."\nreason: TokenMalformed',
    ],
    [
      'none',
      [],
      {},
      2,
      'no join token: expected --token, --token-file or SEALANE_TOKEN\ncreate a token on the broker: sealane token create',
    ],
  ]
  for (const [name, args, init, wantCode, want] of rows) {
    t.test(name, async (t) => {
      const { code, stderr } = await sealane(t, ['join', '--site', site.file, ...args], init)
      t.same({ code, stderr }, { code: wantCode, stderr: `sealane: ${want}\n` })
    })
  }
  t.end()
})

t.test('not root', { skip: cannotBeNobody }, async (t) => {
  const site = new SiteFolder(t, 'milano', '  gateways: [{ node: gw, lane: 0 }]\n')
  for (const file of ['.', 'objects']) chmodSync(site.path(file), 0o777)
  const { code, stderr } = await sealane(t, ['up', '--node', 'gw'], {
    nobody: { reads: [site.file] },
    cwd: site.folder,
  })
  t.equal(
    stderr,
    'sealane: gateway, routeagent: must run as root: it changes routes, nftables and WireGuard\n' +
      'agent and dns do not need root: select them with --component\n',
  )
  t.equal(code, 1)
})

t.test('leaving on one node, not root', { skip: cannotBeNobody }, async (t) => {
  const site = new SiteFolder(t)
  const init = { nobody: { reads: [site.file] }, cwd: site.folder }
  t.same(await sealane(t, ['leave', '--node', 'gw', '--site', site.file], init), {
    code: 1,
    stdout: '',
    stderr: 'sealane: leave --node: must run as root: it changes routes, nftables and WireGuard\n',
  })
})

t.test('a folder that this user may not write', { skip: cannotBeNobody }, async (t) => {
  const site = new SiteFolder(t)
  chmodSync(site.path('.'), 0o755)
  const { code, stderr } = await sealane(t, ['show', 'clusters'], { nobody: { reads: [site.file] }, cwd: site.folder })
  const state = site.path('state')
  t.equal(
    stderr,
    `sealane: ${state}: cannot be used as state folder (spec.state of ${site.file}): EACCES: permission denied, mkdir '${state}'\n`,
  )
  t.equal(code, 1)
})

t.test('a reader that has had enough is no fault', async (t) => {
  const { code, stderr } = await spawnCli(['--help'], { closeStdout: true })
  t.same({ code, stderr }, { code: 0, stderr: '' })
})

t.test('an answer that a full disk does not take is a failure, and no crash', async (t) => {
  const { code, stderr } = await sealane(t, ['version', '-o', 'json'], { stdoutTo: '/dev/full' })
  t.same(
    { code, stderr },
    { code: 1, stderr: 'sealane: the answer could not be written: ENOSPC: no space left on device, write\n' },
  )
})
