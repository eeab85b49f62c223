"""Jobs on SageMaker training clusters: the only door to AWS.

account      who we are in AWS: session, region, role, bucket
preflight    everything that can be asked before the first cent
images       which training image, and whether it can do the job
archive      the code that travels
staging      uploads, content-addressed
request      one CreateTrainingJob request, made by the SageMaker Python SDK
polling      one poller for all jobs of a process, within a fixed number of calls a minute
logs         what a job says in CloudWatch, each line once
jobs         one training job as a `Job`
launcher     the `Launcher`
trouble      what AWS answers when it will not, in plain words
"""
