/** The programs in the pods: a static web server with one script that answers with the caller's address, and iperf3. */
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Lab } from './lab.ts'
import type { PodRow, SiteRow } from './topology.ts'
import { until } from './until.ts'

const WHOAMI = '#!/bin/sh\nprintf "Content-Type: text/plain\\r\\n\\r\\n%s\\n" "$REMOTE_ADDR"\n'

export async function startPrograms(lab: Lab, sites: readonly SiteRow[]): Promise<void> {
  const pods = sites.flatMap((site) => site.pods.map((row) => ({ site, row })))
  await Promise.all(pods.map(({ site, row }) => startPod(lab, site, row)))
}

async function startPod(lab: Lab, site: SiteRow, row: PodRow): Promise<void> {
  const name = `${site.name}-${row.name}`
  lab.spawn(name, `${name}-iperf3`, 'iperf3', ['-s'])
  const port = row.name.startsWith('web') ? '8080' : row.name.startsWith('db') ? '5432' : undefined
  if (port === undefined) return
  const folder = join(lab.directory, 'pages', name)
  await mkdir(join(folder, 'cgi-bin'), { recursive: true })
  await writeFile(join(folder, 'index.html'), `${site.name}/${row.name}\n`)
  await writeFile(join(folder, 'cgi-bin', 'whoami'), WHOAMI)
  await chmod(join(folder, 'cgi-bin', 'whoami'), 0o755)
  lab.spawn(name, `${name}-httpd`, 'busybox', ['httpd', '-f', '-p', `0.0.0.0:${port}`, '-h', folder])
  await until(`${name} to serve its page`, 5000, async () => {
    const page = await lab.exec(name, 'curl', ['-s', '-m', '1', `http://127.0.0.1:${port}/`])
    return page.stdout.trim() === `${site.name}/${row.name}`
  })
}
