/** The messages after a user's mistake: one line names the mistake, and one line names the remedy. */
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { symlinkSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { runCli, spawnCli } from './run-cli.ts'
import { SiteFolder, siteYaml } from './site-folder.ts'

const COMMANDS =
  'broker, relay, token, cluster, join, leave, uninstall, gateway, site, up, export, unexport, service, status, console, diagnose, explain, verify, benchmark, gather, members, show, access, topology, top, flows, version'
const COMPONENTS = 'agent, gateway, routeagent, dns, hub'
const HOST_PORT = 'host:port, such as 192.0.2.1:7443 or [2001:db8::1]:7443'
const BROKER_COMMANDS =
  'serve, deploy, backup, restore, status, gateways, services, verify, migrate, ca, clusterset, relay'
const SITE_COMMANDS = 'init, check, install, uninstall, restart, invite, revoke, promote'
const LABEL = 'an RFC 1123 label: 1 to 63 of a-z, 0-9 and -'

t.test('wrong usage: exit code 2, what was expected, where the help is', async (t) => {
  const rows: [string, string][] = [
    ['', `expected a command: ${COMMANDS}; see: sealane --help`],
    ['frobnicate', `unknown command 'frobnicate': expected ${COMMANDS}; see: sealane --help`],
    [
      'show',
      'show: expected a command: clusters, endpoints, gateways, connections, relays, services, exports, access, traffic, denied; see: sealane show --help',
    ],
    [
      'show clutsers',
      `unknown command 'clutsers' (did you mean clusters?): expected clusters, endpoints, gateways, connections, relays, services, exports, access, traffic, denied; see: sealane show --help`,
    ],
    ['token', 'token: expected a command: create, list, revoke; see: sealane token --help'],
    ['frobnicate --help', `unknown command 'frobnicate': expected ${COMMANDS}; see: sealane --help`],
    ['--help frobnicate', `unknown command 'frobnicate': expected ${COMMANDS}; see: sealane --help`],
    ['-h frobnicate', `unknown command 'frobnicate': expected ${COMMANDS}; see: sealane --help`],
    ['help frobnicate', `unknown command 'frobnicate': expected ${COMMANDS}; see: sealane --help`],
    ['statsu -h', `unknown command 'statsu' (did you mean status?): expected ${COMMANDS}; see: sealane --help`],
    ['site frobnicate --help', `unknown command 'frobnicate': expected ${SITE_COMMANDS}; see: sealane site --help`],
    [
      'help site chekc',
      `unknown command 'chekc' (did you mean check?): expected ${SITE_COMMANDS}; see: sealane site --help`,
    ],
    ['site', `site: expected a command: ${SITE_COMMANDS}; see: sealane site --help`],
    [
      'show Exports --help',
      `unknown command 'Exports' (did you mean exports?): expected clusters, endpoints, gateways, connections, relays, services, exports, access, traffic, denied; see: sealane show --help`,
    ],
    [
      'cluster',
      'cluster: expected a command: list, drain, undrain, evict, rekey, quota, waiting, accept, refuse; see: sealane cluster --help',
    ],
    [
      'cluster help',
      `unknown command 'help': expected list, drain, undrain, evict, rekey, quota, waiting, accept, refuse; see: sealane cluster --help`,
    ],
    ['cluster evict', `missing required argument 'id'; see: sealane cluster evict --help`],
    [
      'cluster evict paris --context c --state s',
      `option '--context <name>' cannot be used with option '--state <directory>'; see: sealane cluster evict --help`,
    ],
    ['broker', `broker: expected a command: ${BROKER_COMMANDS}; see: sealane broker --help`],
    ['show clusters --verbose', `unknown option '--verbose'; see: sealane show clusters --help`],
    ['show clusters -o xml', '--output "xml": expected table, wide, json, yaml; see: sealane show clusters --help'],
    [
      'show clusters milano',
      `too many arguments for 'clusters'. Expected 0 arguments but got 1: milano.; see: sealane show clusters --help`,
    ],
    ['up', `required option '--node <name>' not specified; see: sealane up --help`],
    ['up --node', `option '--node <name>' argument missing; see: sealane up --help`],
    ['up --node Gw', '--node "Gw": expected the name of a Node: RFC 1123 labels and dots; see: sealane up --help'],
    [
      'broker deploy --service-type Web',
      '--service-type "Web": expected LoadBalancer, NodePort, ClusterIP; see: sealane broker deploy --help',
    ],
    [
      'broker deploy --image-pull-policy x',
      '--image-pull-policy "x": expected IfNotPresent, Always, Never; see: sealane broker deploy --help',
    ],
    [
      'broker deploy --image foo',
      '--image "foo": expected a name with a tag, such as registry.example.org/sealane:1.0; see: sealane broker deploy --help',
    ],
    ['broker deploy --advertise :1', `--advertise ":1": expected ${HOST_PORT}; see: sealane broker deploy --help`],
    ['broker deploy --clusterset a.b', `--clusterset "a.b": expected ${LABEL}; see: sealane broker deploy --help`],
    [
      'join --context c --pod-cidr 10.0.0.0/33',
      '--pod-cidr "10.0.0.0/33": expected a prefix length of at most 32; see: sealane join --help',
    ],
    [
      'join --context c --service-cidr 10.0.0.1/16',
      '--service-cidr "10.0.0.1/16": expected no host bits set, as in 10.0.0.0/16; see: sealane join --help',
    ],
    ['join --context c --gateway Bad_', '--gateway "Bad_": expected the name of a Node; see: sealane join --help'],
    [
      'join --context c --gateway n1=x',
      '--gateway "x": expected an IPv4 address or a DNS name such as gw.example.org; see: sealane join --help',
    ],
    [
      'join --context c --gateway n1=gw.example.org:65529',
      '--gateway "65529": expected the first of 8 ports, a whole number from 1 to 65528; see: sealane join --help',
    ],
    [
      'join --context c --gateway n1=127.0.0.1:51820',
      '--gateway "127.0.0.1": it is loopback; see: sealane join --help',
    ],
    ['join --context c --label x', '--label "x": expected key=value, or key- to remove one; see: sealane join --help'],
    ['join --context c -o json', '--output "json": expected yaml; see: sealane join --help'],
    ['join --token x --dry-run', '--dry-run: only for a Kubernetes cluster, with --context or --kubeconfig'],
    ['join --token x --gateway n1', '--gateway: only for a Kubernetes cluster, with --context or --kubeconfig'],
    [
      'join --context c --site s --token x',
      `option '--context <name>' cannot be used with option '--site <file>'; see: sealane join --help`,
    ],
    [
      'token list --kubeconfig k --state s',
      `option '--kubeconfig <file>' cannot be used with option '--state <directory>'; see: sealane token list --help`,
    ],
    [
      'leave --context c --node n1',
      '--node: only for a site file: in a Kubernetes cluster each node cleans up by itself',
    ],
    ['uninstall', 'uninstall: expected --context, --kubeconfig or KUBECONFIG, because there is no default cluster'],
    ['up --node gw --component web', `--component "web": expected ${COMPONENTS}; see: sealane up --help`],
    [
      'up --node gw --log-level loud',
      '--log-level "loud": expected debug, info, warn, error, silent; see: sealane up --help',
    ],
    [
      'up --node gw --status-listen 9471',
      '--status-listen "9471": expected host:port such as 10.0.0.1:53 or [2001:db8::1]:53; see: sealane up --help',
    ],
    [
      'up --node gw --status-listen :65536',
      '--status-listen "127.0.0.1:65536": expected a port from 0 to 65535; see: sealane up --help',
    ],
    [
      'leave --timeout 5',
      '--timeout "5": expected a duration such as 500ms, 10s, 5m or 24h; see: sealane leave --help',
    ],
    [
      'token create --ttl soon',
      '--ttl "soon": expected a duration such as 500ms, 10s, 5m or 24h; see: sealane token create --help',
    ],
    [
      'token create --ttl 31h9',
      '--ttl "31h9": expected a duration such as 500ms, 10s, 5m or 24h; see: sealane token create --help',
    ],
    ['token create --ttl 1000h', '--ttl "1000h": expected 1s to 720h; see: sealane token create --help'],
    ['token create --uses 0', '--uses "0": expected 1 to 1000; see: sealane token create --help'],
    ['token create --cluster-id Paris', `--cluster-id "Paris": expected ${LABEL}; see: sealane token create --help`],
    ['token revoke', `missing required argument 'id'; see: sealane token revoke --help`],
    ['export', `missing required argument 'service'; see: sealane export --help`],
    ['export Web', `service "Web": expected ${LABEL}; see: sealane export --help`],
    ['export web -n a.b', `namespace "a.b": expected ${LABEL}; see: sealane export --help`],
    ['join --cluster-id -x', `--cluster-id "-x": expected ${LABEL}; see: sealane join --help`],
    ['join --token a --token-file b', '--token and --token-file: expected only one of them'],
    ['broker serve', '--advertise: expected at least one host:port under which members reach this broker'],
    ['broker serve --advertise :7443', `--advertise ":7443": expected ${HOST_PORT}; see: sealane broker serve --help`],
    [
      'broker serve --advertise b:70000',
      `--advertise "b:70000": expected ${HOST_PORT}; see: sealane broker serve --help`,
    ],
    [
      'broker serve --listen 7443',
      '--listen "7443": expected host:port such as 10.0.0.1:53 or [2001:db8::1]:53; see: sealane broker serve --help',
    ],
    [
      'broker serve --global-range 244.0.0.0',
      '--global-range "244.0.0.0": expected a CIDR such as 10.42.0.0/16; see: sealane broker serve --help',
    ],
    ['broker serve --clusterset a.b', `--clusterset "a.b": expected ${LABEL}; see: sealane broker serve --help`],
    [
      'broker serve --allow-namespace kube/x',
      `--allow-namespace "kube/x": expected ${LABEL}; see: sealane broker serve --help`,
    ],
  ]
  for (const [line, want] of rows) {
    const { code, stdout, stderr } = await runCli(line.split(' ').filter(Boolean))
    t.equal(
      stderr
        .trimEnd()
        .replace(/^sealane: /, '')
        .replaceAll('\n', '; '),
      want,
      `sealane ${line}`,
    )
    t.equal(code, 2, `sealane ${line}: exit code`)
    t.equal(stdout, '', `sealane ${line}: nothing on stdout`)
  }
})

t.test('a site file that is wrong: file, line, column, field, value', async (t) => {
  const site = new SiteFolder(t)
  const rows: [string, string, string[]][] = [
    [
      'bad CIDR',
      'spec:\n  podCIDRs: [10.42.0.0/33]',
      ['5:14: spec.podCIDRs[0]: expected a CIDR without host bits such as 10.42.0.0/16, got "10.42.0.0/33"'],
    ],
    [
      'host bits',
      'spec:\n  podCIDRs: [10.42.0.1/16]',
      ['5:14: spec.podCIDRs[0]: expected a CIDR without host bits such as 10.42.0.0/16, got "10.42.0.1/16"'],
    ],
    ['no CIDR', 'spec:\n  podCIDRs: []', ['5:13: spec.podCIDRs: expected at least one CIDR']],
    [
      'overlap',
      'spec:\n  podCIDRs: [10.42.0.0/16]\n  serviceCIDRs: [10.42.128.0/17]',
      ['6:18: spec.serviceCIDRs[0]: 10.42.128.0/17 overlaps spec.podCIDRs[0], 10.42.0.0/16'],
    ],
    [
      'bad port',
      'spec:\n  podCIDRs: [10.42.0.0/16]\n  dns: { listen: ["10.42.0.1:99999"] }',
      ['6:19: spec.dns.listen[0]: expected address:port such as 10.42.0.1:53, got "10.42.0.1:99999"'],
    ],
    ['unknown field', 'spec:\n  podCIDRs: [10.42.0.0/16]\n  podCidrs: []', ['6:13: spec.podCidrs: no such field']],
    [
      'lane',
      'spec:\n  podCIDRs: [10.42.0.0/16]\n  gateways: [{ node: gw, lane: 256 }]',
      ['6:32: spec.gateways[0].lane: expected 0 to 7, got 256'],
    ],
    [
      'two at once',
      'spec:\n  podCIDRs: 10.42.0.0/16\n  state: 7',
      ['6:10: spec.state: expected a path, got 7', '5:13: spec.podCIDRs: expected a list, got "10.42.0.0/16"'],
    ],
    ['no YAML', 'spec: [', ['5:1: Flow sequence in block collection must be sufficiently indented and end with a ]']],
  ]
  for (const [name, spec, want] of rows) {
    site.write('site.yaml', `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: { name: milano }\n${spec}\n`)
    const { code, stderr } = await runCli(['show', 'clusters', '--site', site.file])
    const expected = want.map((line) => `${site.file}:${line}\n`).join('')
    t.equal(stderr, `sealane: ${expected}`, name)
    t.equal(code, 1, `${name}: exit code`)
  }
})

t.test('what a site cannot do: exit code 1', async (t) => {
  const site = new SiteFolder(t, 'milano', '  gateways: [{ node: gw, lane: 0 }]\n')
  const bare = new SiteFolder(t)
  bare.write('site.yaml', siteYaml('milano'))
  const token = join(site.folder, 'token.txt')
  writeFileSync(token, '\n')
  const at = ['--site', site.file]
  const none = join(site.folder, 'none')
  const pipe = join(site.folder, 'pipe')
  execFileSync('mkfifo', [pipe])
  // A path that cannot be followed, also by root.
  const loop = join(site.folder, 'loop')
  symlinkSync(loop, loop)
  const rows: [string[], string, 1 | 2 | 3][] = [
    [
      ['show', 'clusters', '--site', none],
      `--site "${none}": no such file; name the site file with --site FILE, or run this in the folder that has site.yaml; for a Kubernetes cluster: --context NAME`,
      1,
    ],
    [
      ['show', 'clusters', '--site', site.folder],
      `--site "${site.folder}": expected a file, got a folder; name the site file with --site FILE, or run this in the folder that has site.yaml; for a Kubernetes cluster: --context NAME`,
      1,
    ],
    [
      ['show', 'clusters', '--site', loop],
      `--site "${loop}": expected a file, got ELOOP: too many symbolic links encountered, stat '${loop}'; name the site file with --site FILE, or run this in the folder that has site.yaml; for a Kubernetes cluster: --context NAME`,
      1,
    ],
    [
      ['broker', 'verify', '--backup', loop],
      `${loop}: ELOOP: too many symbolic links encountered, access '${loop}'; expected a file written by "sealane broker backup" that this user can read; reason: StateFailed`,
      1,
    ],
    [
      ['broker', 'verify', '--backup', none],
      `${none}: no such file; expected a file written by "sealane broker backup"`,
      1,
    ],
    [
      ['status', '--site', pipe],
      `--site "${pipe}": expected a file, got a named pipe; name the site file with --site FILE, or run this in the folder that has site.yaml; for a Kubernetes cluster: --context NAME`,
      3,
    ],
    [['status', '--kubeconfig', pipe], `kubeconfig ${pipe}: expected a regular file, got a named pipe: '${pipe}'`, 3],
    [
      ['status', '--bundle', pipe],
      `--bundle ${pipe}: expected a regular file, got a named pipe: '${pipe}'; expected a file written by "sealane gather"`,
      3,
    ],
    [
      ['join', ...at, '--token-file', pipe],
      `--token-file "${pipe}": expected a regular file, got a named pipe: '${pipe}'`,
      1,
    ],
    [
      ['console', ...at, '--token-file', pipe],
      `--token-file ${pipe}: expected a regular file, got a named pipe: '${pipe}'`,
      1,
    ],
    [
      ['up', '--node', 'gw', '--component', 'agent', ...at],
      'this site has not joined a clusterset; join first: sealane join --token-file FILE',
      1,
    ],
    [
      ['up', '--node', 'w1', '--component', 'gateway', ...at],
      `--node "w1": expected one of gw (spec.gateways of ${site.file})`,
      2,
    ],
    [
      ['up', '--node', 'w1', '--component', 'gateway', '--site', bare.file],
      `--node "w1": expected spec.gateways to name it, but it is empty (spec.gateways of ${bare.file})`,
      2,
    ],
    [['leave', ...at], 'this site has not joined a clusterset', 1],
    [
      ['export', 'web', '-n', 'shop', ...at],
      `service shop/web: not found among the objects of this site (${join(site.folder, 'objects')})`,
      1,
    ],
    [
      ['join', '--token', 'abc', ...at],
      'join token: expected text that begins with "sealane1."; reason: TokenMalformed',
      1,
    ],
    [['join', '--token-file', none, ...at], `--token-file "${none}": no such file`, 1],
    [['join', '--token-file', token, ...at], `--token-file "${token}": expected a join token, but it is empty`, 1],
    [
      ['join', '--token-file', site.folder, ...at],
      `--token-file "${site.folder}": expected a regular file, got a folder: '${site.folder}'`,
      1,
    ],
    [
      ['token', 'list', '--state', none],
      `no broker state in ${none}/broker.db: start the broker once first; for a broker on a cluster: --context NAME; reason: StateAbsent`,
      1,
    ],
    [
      ['token', 'create', '--state', none],
      `no broker state in ${none}/broker.db: start the broker once first; for a broker on a cluster: --context NAME; reason: StateAbsent`,
      1,
    ],
    [
      ['token', 'revoke', 'abc', '--state', none],
      `no broker state in ${none}/broker.db: start the broker once first; for a broker on a cluster: --context NAME; reason: StateAbsent`,
      1,
    ],
    [
      [
        'broker',
        'serve',
        '--state',
        join(token, 'x'),
        '--advertise',
        '127.0.0.1:7443',
        '--listen',
        '127.0.0.1:0',
        '--status-listen',
        ':0',
        '--log-level',
        'silent',
      ],
      `${token}/x cannot be created (ENOTDIR: not a directory, mkdir '${token}/x'): check the directory and its permissions; reason: StateUnwritable`,
      1,
    ],
  ]
  for (const [args, want, exit] of rows) {
    const { code, stdout, stderr } = await runCli(args)
    const line = args.join(' ').replaceAll(site.folder, 'DIR')
    t.equal(
      stderr
        .trimEnd()
        .replace(/^sealane: /, '')
        .replaceAll('\n', '; '),
      want,
      `sealane ${line}`,
    )
    t.equal(code, exit, `sealane ${line}: exit code`)
    t.equal(stdout, '', `sealane ${line}: nothing on stdout`)
  }
  t.same(site.identity(), [], 'nothing of an identity was left')
})

t.test('a port that is taken', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const state = join(temporaryFolder(t), 'broker')
  const serve = ['broker', 'serve', '--state', state, '--advertise', '127.0.0.1:7443', '--log-level', 'silent']
  const status = await runCli([...serve, '--listen', '127.0.0.1:0', '--status-listen', `127.0.0.1:${port}`])
  t.equal(
    status.stderr,
    `sealane: status address 127.0.0.1:${port}: another process uses the port\nfind it with: ss -ltnp 'sport = :${port}'\n`,
  )
  t.equal(status.code, 1)
  const broker = await runCli([...serve, '--listen', `127.0.0.1:${port}`, '--status-listen', ':0'])
  t.equal(broker.stderr, `sealane: cannot listen on 127.0.0.1:${port}: another process uses the address\n`)
  t.equal(broker.code, 1)
})

t.test("a broken file among the user's objects is told once, as a line, and the rest is shown", async (t) => {
  const site = new SiteFolder(t)
  site.write(
    'objects/bad.yaml',
    'apiVersion: v1\nkind: Service\nmetadata: { name: web, namespace: shop }\nspec: { ports: [{ port: abc }] }\n',
  )
  site.write(
    'objects/export.yaml',
    'apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: { name: db, namespace: shop }\n',
  )
  const { code, stdout, stderr } = await runCli(['show', 'exports', '--site', site.file])
  t.equal(
    stdout,
    'NAMESPACE  NAME  VALID  READY  CONFLICT  IMPORTED  MESSAGE\nshop       db    -      -      -         -         -\n',
  )
  t.equal(
    stderr,
    `sealane: the file is not valid: ${site.folder}/objects/bad.yaml:4:25: spec.ports[0].port: expected 1 to 65535, got "abc"\n`,
  )
  t.equal(code, 0)
})

t.test('what others say in our texts steers no terminal', async (t) => {
  const steers = /[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069]/u
  const evil = '\u001b]0;owned\u0007\u009b2J\u202e'
  const folder = temporaryFolder(t)
  const file = join(folder, `${evil}.yaml`)
  writeFileSync(file, `kind: "${evil}"\n${evil}: 1\n`)
  for (const args of [
    ['status', '--site', file],
    ['show', 'members', '--site', join(folder, `no${evil}`)],
    ['gather', evil],
    [evil],
  ]) {
    const { code, stdout, stderr } = await spawnCli(args)
    t.not(code, 0)
    t.notMatch(stdout + stderr, steers)
    t.not(stderr, '', 'something is said')
  }
})
