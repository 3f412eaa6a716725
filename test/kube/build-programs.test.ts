/** Go programs are built once, and again whenever a file that they are built from changes. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { buildGoModule, goVersion } from './support/build-programs.ts'
import { startControlPlane } from './support/control-plane.ts'
import { kubePrograms, kubeProgramsMissing } from './support/kube-programs.ts'

// These are evaluated before any test changes the environment.
const noGo = goVersion() === undefined ? 'needs Go' : false
const noPrograms = kubeProgramsMissing() ?? false

t.setTimeout(1_800_000)

t.test('a Go module', { skip: noGo }, async (t) => {
  const folder = join(temporaryFolder(t), 'greeter')
  withEnv(t, { XDG_CACHE_HOME: temporaryFolder(t) })
  write(folder, 'go.mod', 'module example.test/greeter\n\ngo 1.20\n')
  write(folder, 'cmd/greet/main.go', program('hello'))
  write(folder, 'inner/go.mod', 'module example.test/inner\n\ngo 1.20\n')
  write(folder, 'inner/main.go', 'this is not Go')
  const options = { names: { greet: ['welcome'] } }
  const first = await buildGoModule(folder, options)

  await t.test('gives its programs by all their names', async (t) => {
    t.same(Object.keys(first).sort(), ['greet', 'welcome'])
    t.equal(run(first['greet']), 'greet says hello\n')
    t.equal(run(first['welcome']), 'welcome says hello\n')
    t.equal(statSync(first['greet']!).ino, statSync(first['welcome']!).ino, 'one file on the disk')
  })

  await t.test('is built once', async (t) => {
    const before = statSync(first['greet']!).mtimeMs
    t.same(await buildGoModule(folder, options), first)
    t.equal(statSync(first['greet']!).mtimeMs, before)
  })

  await t.test('is built again when the cache is gone', async (t) => {
    rmSync(join(first['greet']!, '..'), { recursive: true })
    t.same(await buildGoModule(folder, options), first)
    t.equal(run(first['greet']), 'greet says hello\n')
  })

  await t.test('tests and notes beside it change nothing, sources and flags do', async (t) => {
    write(folder, 'cmd/greet/greet.test.ts', '// a test')
    write(folder, 'cmd/greet/README.md', 'a note')
    write(folder, 'inner/main.go', 'nor is this')
    t.same(await buildGoModule(folder, options), first)
    const flagged = await buildGoModule(folder, { ...options, ldflags: ['-X main.word=moin'] })
    t.equal(run(flagged['greet']), 'greet says moin\n')
    write(folder, 'cmd/greet/main.go', program('salve'))
    const second = await buildGoModule(folder, options)
    t.not(second['greet'], first['greet'])
    t.equal(run(second['greet']), 'greet says salve\n')
  })

  await t.test('two that ask at once build once', async (t) => {
    write(folder, 'cmd/greet/main.go', program('ahoj'))
    const [one, other] = await Promise.all([buildGoModule(folder, options), buildGoModule(folder, options)])
    t.same(one, other)
    t.equal(run(one['greet']), 'greet says ahoj\n')
  })

  await t.test('that does not build is told in Go’s words, and leaves nothing half done', async (t) => {
    write(folder, 'cmd/greet/main.go', 'package main\n\nfunc main() { nothing() }\n')
    const message = /^the Go module greeter does not build:\n[^]*undefined: nothing/
    await t.rejects(buildGoModule(folder, options), { message })
    await t.rejects(buildGoModule(folder, options), { message }, 'nor the second time')
    const left = readdirSync(join(first['greet']!, '..', '..')).filter((name) => name.endsWith('.lock'))
    t.same(left, [])
  })
})

t.test('what is missing is told in a sentence', async (t) => {
  withEnv(t, { PATH: '/nowhere', KUBEBUILDER_ASSETS: undefined })
  t.equal(
    kubeProgramsMissing(),
    'needs Go to build kube-apiserver, or KUBEBUILDER_ASSETS with the folder of envtest programs',
  )
  await t.rejects(kubePrograms(), /needs Go to build/)
  await t.rejects(buildGoModule('/some/test-kubelet'), {
    message: 'test-kubelet is built with Go, and there is no Go here',
  })
  const empty = temporaryFolder(t)
  process.env['KUBEBUILDER_ASSETS'] = empty
  t.equal(kubeProgramsMissing(), `KUBEBUILDER_ASSETS names ${empty}, where there is no kube-apiserver and no etcd`)
})

t.test('KUBEBUILDER_ASSETS is used when it is set', { skip: noPrograms }, async (t) => {
  const programs = await kubePrograms()
  const assets = temporaryFolder(t)
  for (const name of ['kube-apiserver', 'etcd']) symlinkSync(programs[name]!, join(assets, name))
  withEnv(t, { KUBEBUILDER_ASSETS: assets })

  await t.test('without Go there is what is in it', async (t) => {
    withEnv(t, { PATH: '/nowhere' })
    t.equal(kubeProgramsMissing(), undefined)
    const found = await kubePrograms()
    t.equal(found['kube-apiserver'], join(assets, 'kube-apiserver'))
    t.equal(found['etcd'], join(assets, 'etcd'))
    t.equal(found['kube-controller-manager'], undefined)
  })

  await t.test('a control plane starts from it', async (t) => {
    const directory = temporaryFolder(t)
    const cluster = await startControlPlane({ name: 'c', directory, serviceCIDR: '10.43.0.0/16', controllers: false })
    t.teardown(() => cluster.stop())
    t.same(Object.keys(cluster.pids()).sort(), ['etcd', 'kube-apiserver'])
    t.throws(() => cluster.logs('kube-scheduler'), /cluster c has no kube-scheduler/)
  })
})

function program(word: string): string {
  return `package main

import (
	"fmt"
	"os"
	"path/filepath"
)

var word = "${word}"

func main() { fmt.Println(filepath.Base(os.Args[0]), "says", word) }
`
}

function write(folder: string, path: string, text: string): void {
  mkdirSync(join(folder, path, '..'), { recursive: true })
  writeFileSync(join(folder, path), text)
}

function run(path = ''): string {
  return existsSync(path) ? spawnSync(path, { encoding: 'utf8' }).stdout : `no ${path}`
}

/** Sets environment variables for the duration of a test. */
function withEnv(t: Test, values: Readonly<Record<string, string | undefined>>): void {
  const before = { ...process.env }
  t.teardown(() => {
    process.env = before
  })
  const next: NodeJS.ProcessEnv = { ...before, ...values }
  for (const [name, value] of Object.entries(values)) if (value === undefined) Reflect.deleteProperty(next, name)
  process.env = next
}
