#!/usr/bin/env python

# # Which cellar does a wine come from?

# In[1]:


import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

# In[2]:


neighbors = 5
test_size = 0.25


# In[3]:


x, y = load_wine(return_X_y=True)
x = (x - x.mean(0)) / x.std(0)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=test_size, random_state=0)


# In[4]:


model = KNeighborsClassifier(n_neighbors=neighbors).fit(x_train, y_train)
accuracy = np.mean(model.predict(x_test) == y_test)
print(f"neighbors_used = {model.n_neighbors}")
print(f"test_size_used = {test_size!r}")
print(f"Accuracy: {accuracy:.4f}")
