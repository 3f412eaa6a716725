/** `sealane site check`, and the same check before a join uses its token. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { execFileSync } from 'node:child_process'
import { join as joinPath } from 'node:path'
import t from 'tap'
import { LoopbackBroker } from '../loopback-broker.ts'
import { type CliResult, runCli } from '../run-cli.ts'
import { SiteFolder, nodeYaml, siteYaml } from '../site-folder.ts'

const EXAMPLES = joinPath(import.meta.dirname, '../../../examples/three-sites')

function check(site: SiteFolder, ...more: string[]): Promise<CliResult> {
  return runCli(['site', 'check', '--site', site.file, ...more])
}

t.test('sites without a finding: exit code 0, and nothing is written', async (t) => {
  const site = new SiteFolder(t)
  t.same(await check(site), { code: 0, stdout: `${site.file}: site milano can join and start\n`, stderr: '' })
  t.same(JSON.parse((await check(site, '--json')).stdout), {
    ...{ format: 1, site: site.file, name: 'milano', valid: true, findings: [] },
  })
  t.equal(site.has('state'), false)
  for (const name of ['milano', 'paris', 'tokyo']) {
    const example = await runCli(['site', 'check', '--site', joinPath(EXAMPLES, name, 'site.yaml')])
    t.equal(example.code, 0, `example ${name}: ${example.stdout}`)
  }
})

t.test('all findings in one run: exit code 2, as text and as JSON', async (t) => {
  const site = new SiteFolder(t, 'milano', '  gateways: [{ node: gw }, { node: gw2 }]\n  dns: {}\n')
  site.write('objects/nodes.yaml', nodeYaml('gw', 'none').replace('type: InternalIP', 'type: Hostname'))
  const nodes = site.path('objects/nodes.yaml')
  const text =
    `${site.file}:7:36: spec.gateways[1].node: no file of ${site.path('objects')} has Node gw2; did you mean gw?\n` +
    `${site.file}:8:8: spec.dns.listen: expected at least one address:port such as 10.42.0.1:53, got none\n` +
    `${nodes}:4:22: status.addresses: Node gw: expected an InternalIP, got none\n` +
    '3 problems\n'
  t.same(await check(site), { code: 2, stdout: text, stderr: '' })
  const { code, stdout } = await check(site, '--json')
  t.equal(code, 2)
  const document = JSON.parse(stdout) as { readonly findings: readonly { readonly line: number }[] }
  t.match(document, {
    format: 1,
    valid: false,
    findings: [{ file: site.file, line: 7, column: 36, reason: 'InvalidValue' }],
  })
  t.equal(document.findings.length, 3)
})

t.test('paths that are no site', async (t) => {
  const site = new SiteFolder(t)
  const rows: [string, () => void, RegExp][] = [
    [
      'a large file',
      () => site.write('site.yaml', `# ${'x'.repeat(1 << 20)}\n`),
      /:1:1: \d+ bytes: expected at most 1048576\n/,
    ],
    ['an empty file', () => site.write('site.yaml', ''), /:1:1: expected one document of kind Site, got 0\n/],
    ['no file', () => site.remove('site.yaml'), /:1:1: no such file\n/],
    ['a folder', () => mkdirSync(site.file), /:1:1: expected a regular file\n/],
    [
      'a pipe, which would never end',
      () => {
        rmSync(site.file, { recursive: true })
        execFileSync('mkfifo', [site.file])
      },
      /:1:1: expected a regular file\n/,
    ],
  ]
  for (const [name, make, want] of rows) {
    make()
    const { code, stdout } = await check(site)
    t.equal(code, 2, name)
    t.match(stdout, want, name)
  }
})

t.test('the ranges of a clusterset that are not the default ones', async (t) => {
  const site = new SiteFolder(t)
  site.write('site.yaml', site.read('site.yaml').replace('10.43.0.0/16', '244.7.0.0/16'))
  t.match(await check(site), { code: 2, stdout: /244\.7\.0\.0\/16 overlaps 244\.0\.0\.0\/8 of global addresses\n/ })
  t.equal((await check(site, '--clusterset-range', '240.0.0.0/8')).code, 0)
  const other = await check(site, '--clusterset-range', '240.0.0.0/8', '--clusterset-range', '244.7.0.0/24')
  t.match(other, { code: 2, stdout: /overlaps 244\.7\.0\.0\/24 of the clusterset\n/ })
})

t.test('join checks first: the token can still be used, and no state is left', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const token = await broker.token()
  const site = new SiteFolder(t)
  const good = site.read('objects/nodes.yaml')
  const join = (): Promise<CliResult> => runCli(['join', '--site', site.file, '--token', token])
  const folder = site.path('objects')
  const rows: [string, () => void, string][] = [
    ['no Node', () => site.remove('objects/nodes.yaml'), `spec.gateways[0].node: no file of ${folder} has Node gw`],
    ['no folder', () => rmSync(folder, { recursive: true }), `spec.objects: ${folder}: no such folder`],
    ['a file instead', () => writeFileSync(folder, ''), `spec.objects: ${folder}: expected a folder`],
  ]
  for (const [name, make, want] of rows) {
    make()
    const { code, stdout, stderr } = await join()
    t.same({ code, stdout }, { code: 1, stdout: '' }, name)
    t.match(stderr, want, name)
    t.match(
      stderr,
      `the token was not used; correct the files, and see: sealane site check --site ${site.file}\n`,
      name,
    )
  }
  site.write('site.yaml', siteYaml('milano'))
  t.match((await join()).stderr, /spec\.gateways: expected at least one gateway/)
  t.equal(site.has('state'), false, 'no state')
  rmSync(folder)
  mkdirSync(folder)
  site.write('objects/nodes.yaml', good)
  site.write('site.yaml', siteYaml('milano', "  gateways: [{ node: gw }]\n  dns: { listen: ['10.42.0.1:53'] }\n"))
  t.equal((await join()).code, 0, 'the same token')
})
