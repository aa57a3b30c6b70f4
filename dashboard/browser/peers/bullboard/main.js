// Serves bull-board on queues of BullMQ that it fills first. Arguments: the port of a Redis, the rows and the
// schedules as JSON. It prints one line of JSON, its URL and the id of an example, and ends when its input ends.
const { createBullBoard } = require('@bull-board/api')
const { BullMQAdapter } = require('@bull-board/api/bullMQAdapter')
const { ExpressAdapter } = require('@bull-board/express')
const { MetricsTime, Queue, Worker } = require('bullmq')
const express = require('express')

const [port, rows, schedules] = process.argv.slice(2).map((text) => JSON.parse(text))
const connection = { host: '127.0.0.1', port }
const queues = new Map(rows.map(({ queue }) => [queue, new Queue(queue, { connection })]))
const hour = 3600 * 1000

const job = (row, i, opts = {}) => ({ name: row.kind, data: { user: i, mail: `user${i}@example.com` }, opts })

/** Gives the jobs of a row from a number on. */
const jobs = (row, from, n, opts) => Array.from({ length: n }, (_, i) => job(row, from + i, opts(from + i)))

const begun = (row) => row.completed + row.retry + row.dead + row.running
const last = (row, i) => i >= row.completed + row.retry

/** Does what the row says of a job. */
async function work(job) {
  const row = rows.find(({ kind }) => kind === job.name) ?? { completed: Infinity }
  const i = job.data.user ?? 0
  if (i < row.completed) return
  if (i >= row.completed + row.retry + row.dead) await new Promise(() => {})
  throw new Error(row.error.replace('%d', 1000 + i))
}

/** Works jobs off until each has the state of its row. */
async function fill() {
  for (const row of rows) {
    const once = (i) => ({ attempts: last(row, i) ? 1 : 20, backoff: { type: 'fixed', delay: hour } })
    await queues.get(row.queue).addBulk(jobs(row, 0, begun(row), once))
  }
  const metrics = { maxDataPoints: MetricsTime.TWO_WEEKS }
  for (const [name, queue] of queues) {
    const worker = new Worker(name, work, { connection, metrics, concurrency: name === 'exports' ? 4 : 20 })
    if (name === 'exports') continue
    while ((await queue.getJobCountByTypes('waiting', 'active')) > 0) await new Promise((go) => setTimeout(go, 50))
    await worker.pause() // it stays, as a worker that is idle does
  }
  for (const row of rows) {
    const queue = queues.get(row.queue)
    if (row.paused) await queue.pause()
    await queue.addBulk(jobs(row, begun(row), row.waiting, () => ({})))
    await queue.addBulk(jobs(row, begun(row), row.scheduled, (i) => ({ delay: (i + 1 - begun(row)) * hour })))
  }
  for (const { Queue: queue, Kind: name, Spec: pattern } of schedules) {
    await queues.get(queue).upsertJobScheduler(name, { pattern }, { name, data: {} })
  }
}

async function serve() {
  const serverAdapter = new ExpressAdapter()
  createBullBoard({ queues: [...queues.values()].map((queue) => new BullMQAdapter(queue)), serverAdapter })
  const app = express()
  app.use('/', serverAdapter.getRouter())
  const mail = queues.get('mail')
  const [example] = [...(await mail.getFailed(0, 0)), ...(await mail.getCompleted(0, 0))]
  const server = app.listen(0, '127.0.0.1', () => {
    console.log(JSON.stringify({ url: `http://127.0.0.1:${server.address().port}`, example: example.id }))
  })
}

process.stdin.resume().on('end', () => process.exit())
fill().then(serve).catch((err) => {
  console.error(err)
  process.exit(1)
})
