/** A process that raises its own priority: how it changes its threads, and when it does not. */
import t from 'tap'
import { type Processes, favourProcess } from '../../../runtime/process-resources.ts'

const REFUSED = Object.assign(new Error('setpriority EACCES'), { code: 'ERR_SYSTEM_ERROR', info: { code: 'EACCES' } })

interface World {
  /** The nice values of its threads, by number. */
  readonly threads: Map<number, number>
  session: number
  readonly leadsSession: boolean
  readonly allowed: boolean
}

function world(init: Partial<World> = {}): World {
  const threads = new Map([10, 11, 12].map((thread) => [thread, 0]))
  return { threads, session: 0, leadsSession: true, allowed: true, ...init }
}

function processes(of: World): Processes {
  return {
    threads: () => [...of.threads.keys()],
    leadsSession: () => of.leadsSession,
    nice: () => of.threads.get(10) ?? NaN,
    setNice: (thread, nice) => {
      if (!of.allowed) throw REFUSED
      of.threads.set(thread, nice)
    },
    setSessionNice: (nice) => {
      if (!of.allowed) throw REFUSED
      of.session = nice
    },
  }
}

t.test('all its threads, and the session that it leads', (t) => {
  const one = world()
  t.same(favourProcess(processes(one)), { nice: -10 })
  t.same([...one.threads.values()], [-10, -10, -10], 'each thread has a nice value of its own')
  t.equal(one.session, -10)
  t.end()
})

t.test('a session of somebody else stays as it is: programs of theirs are in it', (t) => {
  const one = world({ leadsSession: false })
  t.same(favourProcess(processes(one)), { nice: -10 })
  t.equal(one.session, 0)
  t.end()
})

t.test('where it may not, it goes on as it is, and says so', (t) => {
  const one = world({ allowed: false })
  t.same(favourProcess(processes(one)), { nice: 0, why: 'CAP_SYS_NICE is missing' })
  t.same([...one.threads.values()], [0, 0, 0])
  t.end()
})

t.test('what somebody has chosen for it stays', (t) => {
  for (const chosen of [15, -5, -20]) {
    const one = world({ threads: new Map([[10, chosen]]) })
    t.same(favourProcess(processes(one)), { nice: chosen, why: 'set by the parent process' }, `${chosen}`)
    t.same([...one.threads.values()], [chosen])
  }
  t.end()
})

t.test('a thread that ends meanwhile, and a kernel without priorities of sessions', (t) => {
  const one = world()
  const gone = Object.assign(new Error('setpriority ESRCH'), { info: { code: 'ESRCH' } })
  const missing = Object.assign(new Error('no such file'), { code: 'ENOENT' })
  const those: Processes = {
    ...processes(one),
    setNice: (thread, nice) => {
      if (thread === 11) throw gone
      one.threads.set(thread, nice)
    },
    setSessionNice: () => {
      throw missing
    },
  }
  t.same(favourProcess(those), { nice: -10 })
  t.same([...one.threads.values()], [-10, 0, -10])
  t.end()
})
